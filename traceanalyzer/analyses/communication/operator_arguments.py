"""What the operator that launched a communication call says of it, where neither kernel nor host call has arguments."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import plain_values, taken
from traceanalyzer.analyses.grouping import by_category
from traceanalyzer.analyses.trace.launch_moments import launch_moments
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import as_objects, known_of, mask_of, rows_named
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, with_columns

OPERATOR = "operator"
"""Where the arguments of such calls come from."""


def with_operators(trace: RankTrace, rows: np.ndarray, calls: pd.DataFrame) -> pd.DataFrame:
    """The calls, where those without arguments have collective, dtype and size from the operator around their launch.

    `rows` are their positions in `trace.gpu_ops`. Peer-to-peer copies keep their own bytes. Sizes of kernels are taken
    where their library's operators have the tensors as arguments. The group's size may stand in the kernel's name.
    """
    calls, names = _with_group_sizes(calls), column_of(calls, "name")
    is_silent = ~known_of(calls, "arguments")
    operator = np.where(is_silent, comm_operators(trace, rows), NONE) if is_silent.any() else np.full(len(rows), NONE)
    has_operator = operator != NONE
    if not has_operator.any():
        return calls
    texts = {name: taken(column_of(trace.host_ops, name), operator) for name in ("name", "shapes", "dtypes")}
    is_copy = rows_named(calls, "activity", "memcpy")
    of_kernel = by_category(names, kinds.kernel_collective)
    of_kernel[is_copy] = None
    what = _filled(column_of(calls, "collective"), of_kernel)
    what = _filled(what, by_category(texts["name"], kinds.operator_collective))
    has_bytes = by_category(names, _has_bytes).astype(bool)
    keys = (what, texts["shapes"], texts["dtypes"], column_of(calls, "group_size"), by_category(names, _dtype))
    dtypes, sizes = _bytes_of(keys, np.flatnonzero(has_operator & ~is_copy & has_bytes))
    arguments = np.array(column_of(calls, "arguments"), dtype=object)
    arguments[~sizes.isna() | (is_copy & has_operator)] = OPERATOR
    return with_columns(
        calls,
        collective=as_objects(what),
        dtype=as_objects(_filled(column_of(calls, "dtype"), dtypes)),
        size_bytes=column_of(calls, "size_bytes").fillna(sizes),
        arguments=as_objects(arguments),
    )


def _with_group_sizes(calls: pd.DataFrame) -> pd.DataFrame:
    """The calls, with their groups' sizes where only their kernels' names tell them."""
    sizes = column_of(calls, "group_size")
    is_absent = sizes.isna()
    if not is_absent.any():
        return calls
    in_name = by_category(column_of(calls, "name")[is_absent], _group_size)
    told = np.array([own is not None for own in in_name], dtype=bool)
    if not told.any():
        return calls
    sizes = sizes.copy()
    sizes[np.flatnonzero(is_absent)[told]] = in_name[told].astype(np.int64)
    return with_columns(calls, group_size=sizes)


def _filled(values: Any, others: np.ndarray) -> np.ndarray:
    """Objects, and others where they are absent."""
    objects = np.array(values, dtype=object)
    return np.where(pd.isna(objects), others, objects)


def _group_size(name: str) -> int | None:
    kernel = kinds.comm_kernel(name)
    return kernel.group_size if kernel else None


def comm_operators(
    trace: RankTrace, rows: np.ndarray, is_of: Callable[[str], bool] = kinds.is_comm_operator
) -> np.ndarray:
    """For each call the row in `host_ops` of the innermost communicating operator around its launch, else -1."""
    launch = array_of(trace.gpu_ops, "launch")[rows]
    own = np.flatnonzero(mask_of(column_of(trace.host_ops, "name"), is_of))
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


def _dtype(name: str) -> str | None:
    kernel = kinds.comm_kernel(name)
    return kernel.dtype if kernel else None


def _has_bytes(name: str) -> bool:
    """Whether the tensors that it moves are arguments of its library's operators."""
    kernel = kinds.comm_kernel(name)
    return kernel is None or kernel.sizes is not None


def _bytes_of(keys: Sequence[Any], rows: np.ndarray) -> tuple[np.ndarray, Any]:
    """Element types and sizes in bytes of these rows, worked out once for equal ones; absent elsewhere."""
    told = [*zip(*(plain_values(pd.Series(values[rows])) for values in keys), strict=True)]
    facts = {each: kinds.operator_bytes(*each) for each in {*told}}
    count = len(keys[0])
    dtypes, sizes = np.full(count, np.nan, dtype=object), np.full(count, None, dtype=object)
    dtypes[rows] = [facts[each].dtype or np.nan for each in told]
    sizes[rows] = [facts[each].size_bytes for each in told]
    return dtypes, pd.array(sizes, dtype="Int64")
