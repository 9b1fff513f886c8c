"""What the operator that launched a communication call says of it, where neither kernel nor host call has arguments."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import is_any, taken, typed
from traceanalyzer.analyses.grouping import by_category
from traceanalyzer.analyses.trace.launch_moments import launch_moments
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, table_of, with_columns

OPERATOR = "operator"
"""Where the arguments of such calls come from."""


def with_operators(trace: RankTrace, rows: np.ndarray, calls: pd.DataFrame) -> pd.DataFrame:
    """The calls, where those without arguments have collective, dtype and size from the operator around their launch.

    `rows` are their positions in `trace.gpu_ops`. Peer-to-peer copies keep their own bytes. Sizes of kernels are taken
    where their library's operators have the tensors as arguments. The group's size may stand in the kernel's name.
    """
    in_name = pd.array(by_category(column_of(calls, "name"), _group_size), dtype="Int64")
    calls = with_columns(calls, group_size=column_of(calls, "group_size").fillna(in_name))
    operator = np.where(calls["arguments"].isna(), comm_operators(trace, rows), NONE)
    if (operator == NONE).all():
        return calls
    kernels = {name: kinds.comm_kernel(str(name)) for name in calls["name"].unique()}
    names = calls["name"].astype("object")
    texts = {name: taken(column_of(trace.host_ops, name), operator) for name in ("name", "shapes", "dtypes")}
    is_copy = is_any(calls["activity"], "memcpy")
    said = pd.Series(texts["name"]).astype("object").map(_collectives(texts["name"]), na_action="ignore")
    of_kernel = names.map({name: kinds.kernel_collective(str(name)) for name in kernels})
    what = calls["collective"].astype("object").fillna(of_kernel.mask(is_copy)).fillna(said)
    table = table_of({"what": what, "shapes": texts["shapes"], "dtypes": texts["dtypes"]})
    table["ranks"] = calls["group_size"]
    table["in_name"] = names.map({name: kernel and kernel.dtype for name, kernel in kernels.items()})
    has_bytes = names.map({name: kernel is None or kernel.sizes is not None for name, kernel in kernels.items()})
    is_named_copy = is_copy & (operator != NONE)
    facts = _bytes_of(table, np.flatnonzero((operator != NONE) & ~is_copy & has_bytes.to_numpy(dtype=bool)))
    return calls.assign(
        collective=what,
        dtype=calls["dtype"].astype("object").fillna(facts["dtype"]),
        size_bytes=calls["size_bytes"].fillna(facts["size_bytes"]),
        arguments=calls["arguments"].astype("object").mask(facts["size_bytes"].notna() | is_named_copy, OPERATOR),
    )


def _group_size(name: str) -> int | None:
    kernel = kinds.comm_kernel(name)
    return kernel.group_size if kernel else None


def comm_operators(
    trace: RankTrace, rows: np.ndarray, is_of: Callable[[str], bool] = kinds.is_comm_operator
) -> np.ndarray:
    """For each call the row in `host_ops` of the innermost communicating operator around its launch, else -1."""
    launch = array_of(trace.gpu_ops, "launch")[rows]
    own = np.flatnonzero(_mask(trace.host_ops["name"], is_of))
    found = np.full(len(rows), NONE, dtype=np.int64)
    launched = np.flatnonzero(launch != NONE)
    if not len(own) or not len(launched):
        return found
    moments, threads = launch_moments(trace, rows[launched])
    starts, ends, thread_of = (array_of(trace.host_ops, name)[own] for name in ("start_ns", "end_ns", "thread"))
    for thread in np.unique(threads):
        held, asked = np.flatnonzero(thread_of == thread), np.flatnonzero(threads == thread)
        times, reach = moments[asked], np.maximum.accumulate(ends[held])
        outermost = held[ends[held] > np.append(NONE, reach[:-1])] if len(held) else held
        for operators in (outermost, held):  # the innermost, where it is around the launch, overrides
            place = np.searchsorted(starts[operators], times, side="right") - 1
            begun = np.flatnonzero(place >= 0)
            around = operators[place[begun]]
            is_around = ends[around] >= times[begun]
            found[launched[asked[begun[is_around]]]] = own[around[is_around]]
    return found


def _mask(names: pd.Series, is_of: Callable[[str], bool]) -> np.ndarray:
    said = np.array([is_of(str(name)) for name in names.cat.categories.tolist()], dtype=bool)
    mask: np.ndarray = np.append(said, False)[names.cat.codes.to_numpy()]
    return mask


def _collectives(names: pd.Categorical) -> dict[object, str | None]:
    return {name: kinds.operator_collective(str(name)) for name in names.categories.tolist()}


def _bytes_of(table: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
    """`dtype` and `size_bytes` of these rows, worked out once for equal ones; NA elsewhere."""
    keys = table.iloc[rows].astype("object")
    keys = keys.where(keys.notna(), None)
    distinct = keys.drop_duplicates()
    facts = [kinds.operator_bytes(*row) for row in distinct.itertuples(index=False)]
    made = distinct.assign(dtype=[fact.dtype for fact in facts], size_bytes=[fact.size_bytes for fact in facts])
    merged = keys.merge(made, how="left", on=list(table)).set_index(keys.index)[["dtype", "size_bytes"]]
    return typed(merged.reindex(table.index), {"dtype": "object", "size_bytes": "Int64"})
