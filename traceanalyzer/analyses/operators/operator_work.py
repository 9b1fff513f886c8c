"""The FLOPs and bytes of every recorded operator call, each counted once, and the GPU operations that did them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import named
from traceanalyzer.analyses.grouping import Groups, by_category, sums_at
from traceanalyzer.analyses.kernels.kernel_names import list_types, uses_tensor_cores
from traceanalyzer.analyses.operators.operator_call import MOST_CALLS, Call, size
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.operators.work import MODEL_FAMILIES, OWN_WORK, work
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named, texts_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, columns_of, picked, table_of, with_columns

_KEY = ["name", "shapes", "dtypes", "arguments"]
_QUANTITIES = ("flops", "model_flops", "masked_flops", "bytes", "list_elements")
_MOST = 1 << 56
"""No call does or moves as much: shapes that ask for it are damage, and sums of it would not be exact."""


class OperatorWork(Struct, frozen=True):
    """Work of the operators of a rank.

    Attributes:
        calls: a row for each operator that counts: `row` in `host_ops`, `family`, `flops`, `model_flops`,
            `masked_flops`, `bytes` (as in `work.Work`; of lists of tensors by the types that the kernel's name has),
            `dtype`, `gpu_ops`, `gpu_ns` and `on_tensor_cores` (whether
            its kernels use them; NA when no name says).
        of_op: for each GPU operation the row in `calls` that it works for, -1 for none.
    """

    calls: pd.DataFrame
    of_op: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace, tree: OperatorTree) -> "OperatorWork":
        """Find the operators that count: `OWN_WORK`, and the innermost with a formula; matrix work apart."""
        found, of_row = _distinct_work(trace.host_ops)
        is_known = ~(column_of(found, "flops").isna() & column_of(found, "bytes").isna())
        is_model, is_known = rows_named(found, "family", *MODEL_FAMILIES)[of_row], is_known[of_row]
        has_own = rows_named(trace.host_ops, "name", *OWN_WORK)
        counts = _innermost(tree, is_model & is_known) | _innermost(tree, ~is_model & is_known) | (has_own & is_known)
        rows, of_op = _on_this_gpu(trace, *_calls_of_ops(tree, counts))
        calls = with_columns(picked(found, of_row[rows]), row=rows)
        told = columns_of(_with_list_types(trace, calls, of_op)) | _gpu_columns(trace, of_op, len(rows))
        return cls(table_of({name: values for name, values in told.items() if name != "list_elements"}), of_op)


def _distinct_work(ops: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Work of each distinct call by itself, and which of them each operator is."""
    groups = Groups.of(ops, _KEY, by_appearance=True, with_absent=True)
    rows = [*map(_row, *(texts_of(names).tolist() for names in groups.keys.values()))]
    family, *quantities, dtype = zip(*rows, strict=True) if rows else [()] * (len(_QUANTITIES) + 2)
    integers = {name: _integers(values) for name, values in zip(_QUANTITIES, quantities, strict=True)}
    every = np.arange(len(rows))
    texts = {name: named(values, every) for name, values in (("family", family), ("dtype", dtype))}
    return table_of({"family": texts["family"], **integers, "dtype": texts["dtype"]}), groups.of_row


def _integers(values: Sequence[int | None]) -> pd.arrays.IntegerArray:
    is_absent = np.array([value is None for value in values], dtype=bool)
    return pd.arrays.IntegerArray(np.array([value or 0 for value in values], dtype=np.int64), is_absent)


@lru_cache(MOST_CALLS)
def _row(name: str, shapes: str | None, dtypes: str | None, arguments: str | None) -> tuple[Any, ...]:
    found = work(name, Call.parse(shapes, dtypes, arguments))
    if found is None:
        return (None,) * (len(_QUANTITIES) + 2)
    told = [getattr(found, name) for name in _QUANTITIES]
    return (found.family, *(value if value is None or 0 <= value < _MOST else None for value in told), found.dtype)


def _innermost(tree: OperatorTree, marked: np.ndarray) -> np.ndarray:
    """Marked operators that hold no other marked one."""
    alone: np.ndarray = marked & (tree.nesting.summed_up(marked) == 1)
    return alone


def _calls_of_ops(tree: OperatorTree, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The operators that count, and for each GPU operation the position among them of the one it works for."""
    rows = np.flatnonzero(counts)
    position = np.full(len(counts) + 1, NONE, dtype=np.int64)
    position[rows] = np.arange(len(rows))
    nearest = np.append(tree.nesting.handed_down(counts), NONE)
    owner = np.where(tree.owner >= 0, tree.owner, len(counts))
    return rows, position[nearest[owner]]


def _on_this_gpu(trace: RankTrace, rows: np.ndarray, of_op: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same without operators that launched nothing here, where the process launches on other GPUs, too."""
    has_work = np.bincount(of_op[of_op != NONE], minlength=len(rows)) > 0
    if has_work.all() or not _launches_elsewhere(trace):
        return rows, of_op
    place = np.append(np.where(has_work, np.cumsum(has_work) - 1, NONE), NONE)
    return rows[has_work], place[of_op]


def _launches_elsewhere(trace: RankTrace) -> bool:
    """Whether calls were answered by operations of which none is this GPU's."""
    own, calls = array_of(trace.gpu_ops, "correlation"), trace.api_calls
    if 2 * np.count_nonzero(own > 0) < len(own):
        return False
    answered = array_of(calls, "correlation")[array_of(calls, "has_gpu_op")]
    return not pd.Index(answered).isin(own).all()


def _with_list_types(trace: RankTrace, calls: pd.DataFrame, of_op: np.ndarray) -> pd.DataFrame:
    """Bytes and element type of calls on lists of tensors, by the first of their kernels whose name has types."""
    dtypes: Any = column_of(calls, "dtype")
    texts = dtypes.categories.tolist()
    has_list = ~column_of(calls, "list_elements").isna()
    if not has_list.any():
        return with_columns(calls, dtype=named(texts, dtypes.codes))
    names: Any = column_of(trace.gpu_ops, "name")
    types = [_list_type(name) for name in names.categories.tolist()]
    is_told = np.array([*(size is not None for _, size in types), False])[names.codes]
    told = np.flatnonzero((of_op != NONE) & is_told)
    call, first = np.unique(of_op[told], return_index=True)
    call, code = call[has_list[call]], names.codes[told[first]][has_list[call]]
    element_bytes = np.array([size or 0.0 for _, size in types])[code]
    moved, is_absent = column_of(calls, "bytes").copy(), np.zeros(len(call), dtype=bool)
    elements = calls["list_elements"].to_numpy(dtype=np.float64, na_value=0)[call]
    moved[call] = pd.arrays.IntegerArray(np.round(elements * element_bytes).astype(np.int64), is_absent)
    place = dtypes.codes.astype(np.int64)
    place[call] = len(texts) + code
    return with_columns(calls, bytes=moved, dtype=named([*texts, *(dtype for dtype, _ in types)], place))


@lru_cache(MOST_CALLS)
def _list_type(kernel: str) -> tuple[str | None, float | None]:
    """Type that it writes, and bytes of an element: a copy between two types moves as many of each."""
    types = list_types(kernel)
    sizes = [known for name in types if (known := size((1,), name)) is not None]
    return (types[0], sum(sizes) / len(sizes)) if sizes and len(sizes) == len(types) else (None, None)


def _gpu_columns(trace: RankTrace, of_op: np.ndarray, count: int) -> dict[str, Any]:
    ops = trace.gpu_ops
    held = trace.counted & (of_op != NONE)
    durations = array_of(ops, "end_ns") - array_of(ops, "start_ns")
    said = by_category(column_of(ops, "name"), uses_tensor_cores)
    yes, no = (np.bincount(of_op[held & (said == answer)], minlength=count) for answer in (True, False))
    return {
        "gpu_ops": np.bincount(of_op[held], minlength=count),
        "gpu_ns": sums_at(of_op[held], durations[held], count),
        "on_tensor_cores": pd.arrays.BooleanArray(yes > 0, (yes == 0) & (no == 0)),
    }
