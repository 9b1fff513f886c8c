"""What the host operations and the kernel of one communication call say together: its arguments."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import all_known
from traceanalyzer.analyses.grouping import Groups, by_category
from traceanalyzer.model.plain import as_objects, whole
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, columns_of

_FIRST = (
    "group", "group_description", "group_ranks", "group_size", "dtype", "in_elements", "out_elements", "in_split",
    "out_split", "sequence", "reduction", "root",
)  # fmt: skip
"""Arguments of which a call has that of its first operation that tells it."""


INFERRED_SIZE = "host, size inferred"
"""Where the arguments come from of calls whose communicator was made before the capture."""


def merged(args: pd.DataFrame, rows: np.ndarray, call: np.ndarray, count: int) -> dict[str, Any]:
    """Columns of arguments for each of so many calls; those of coalesced operations are added up or listed.

    Args:
        args: `comm_args` of the trace.
        rows: of these arguments.
        call: for each of the rows the call that it is of.
        count: of calls.
    """
    groups = Groups.of_numbers(call)
    place = np.full(count, NONE, dtype=np.int64)
    place[call[groups.first]] = np.arange(len(groups))
    is_kernel = groups.any(array_of(args, "gpu_op")[rows] != NONE)
    is_inferred = groups.any(array_of(args, "has_inferred_size")[rows])
    columns = columns_of(args)
    found = {
        "collective": _collective(column_of(args, "collective")[rows], groups),
        **{name: groups.first_known(columns[name][rows]) for name in _FIRST},
        "size_bytes": _size(args, rows, groups),
        "is_uneven": _is_uneven(args, rows, groups),
        "peers": _peers(args, rows, groups),
        "host_operations": all_known(groups.counts()),
        "arguments": np.select([is_inferred, is_kernel], [INFERRED_SIZE, "kernel"], "host").astype(object),
    }
    return {name: _taken(values, place) for name, values in found.items()}


def _taken(values: Any, place: np.ndarray) -> Any:
    if not isinstance(values, np.ndarray):
        return values.take(place, allow_fill=True)
    return as_objects(np.append(values, np.array([None], dtype=object))[place])


def _size(args: pd.DataFrame, rows: np.ndarray, groups: Groups) -> Any:
    """Size in bytes of the full arrays of each call; NA when elements or dtype of one are unknown."""
    said, gathered, given = (column_of(args, name)[rows] for name in ("size_bytes", "out_elements", "in_elements"))
    collective: Any = column_of(args, "collective")[rows]
    of_dtype = by_category(column_of(args, "dtype")[rows], kinds.dtype_bytes)
    is_told = np.array([own is not None for own in of_dtype], dtype=bool)
    element = np.where(is_told, of_dtype, 0).astype(np.int64)
    gathers = by_category(collective, lambda name: name == "all_gather") == True  # noqa: E712 - element by element
    elements = np.where(gathers, whole(gathered, 0), whole(given, 0))
    is_known = is_told & ~np.where(gathers, gathered.isna(), given.isna())
    has_said = ~said.isna()
    sizes = np.where(has_said, whole(said, 0), np.where(is_known, elements * element, 0))
    return pd.arrays.IntegerArray(groups.sums(sizes), groups.any(~(has_said | is_known)))


def _is_uneven(args: pd.DataFrame, rows: np.ndarray, groups: Groups) -> Any:
    """Whether split sizes differ; NA when those that the trace shows are equal but it left some out."""
    told = [by_category(column_of(args, name)[rows], _differ) for name in ("in_split", "out_split")]
    is_uneven, is_cut = (groups.any((told[0] == what) | (told[1] == what)) for what in ("uneven", "cut"))
    return pd.arrays.BooleanArray(is_uneven, is_cut & ~is_uneven)


def _differ(split: str) -> str:
    sizes = set(split.split(","))
    if len(sizes - {kinds.CUT_LIST}) > 1:
        return "uneven"
    return "cut" if kinds.CUT_LIST in sizes else "even"


def _peers(args: pd.DataFrame, rows: np.ndarray, groups: Groups) -> np.ndarray:
    """`send 1, recv 1` of each call that has peers."""
    peer = column_of(args, "peer")[rows]
    collective: Any = column_of(args, "collective")[rows]
    found = np.full(len(groups), None, dtype=object)
    is_named = np.flatnonzero(~peer.isna() & (collective.codes != NONE))
    for row in is_named[np.argsort(groups.of_row[is_named], kind="stable")].tolist():
        group, text = groups.of_row[row], f"{collective[row]} {peer[row]}"
        found[group] = text if found[group] is None else f"{found[group]}, {text}"
    return found


def _collective(collective: Any, groups: Groups) -> np.ndarray:
    """The collective of a call; several in one kernel are `send_recv` when all are messages, else `coalesced`."""
    codes = collective.codes.astype(np.int64)
    names = np.array([*collective.categories, None], dtype=object)
    most = groups.largest(codes)
    least = groups.smallest(np.where(codes == NONE, len(names), codes))
    is_message = ~groups.any(~np.isin(names, kinds.POINT_TO_POINT)[codes])
    several = np.where(is_message, "send_recv", "coalesced")
    found: np.ndarray = np.where((most == NONE) | (least == most), names[most], several)
    return found
