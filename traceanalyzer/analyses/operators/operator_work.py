"""The FLOPs and bytes of every recorded operator call, each counted once, and the GPU operations that did them."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import typed
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.kernels.kernel_names import list_types, uses_tensor_cores
from traceanalyzer.analyses.operators.operator_call import Call, size
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.operators.work import MODEL_FAMILIES, OWN_WORK, work
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE

_KEY = ["name", "shapes", "dtypes", "arguments"]
_QUANTITIES = ("flops", "model_flops", "masked_flops", "bytes", "list_elements")


@dataclass(frozen=True, slots=True)
class OperatorWork:
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
        found = _work_of_calls(trace.host_ops)
        is_model = found["family"].isin(MODEL_FAMILIES).to_numpy()
        is_known = (found["flops"].notna() | found["bytes"].notna()).to_numpy()
        has_own = trace.host_ops["name"].isin(OWN_WORK).to_numpy()
        counts = _innermost(tree, is_model & is_known) | _innermost(tree, ~is_model & is_known) | (has_own & is_known)
        rows = np.flatnonzero(counts)
        of_op = _calls_of_ops(tree, counts, rows)
        calls = found.iloc[rows].assign(row=rows).reset_index(drop=True)
        calls = _with_list_types(trace, calls, of_op).drop(columns="list_elements")
        return cls(calls.assign(**_gpu_columns(trace, of_op, len(rows))), of_op)


def _work_of_calls(ops: pd.DataFrame) -> pd.DataFrame:
    """Work of each operator by itself; computed once for each distinct call."""
    groups = Groups.of(ops, _KEY, by_appearance=True, with_absent=True)
    distinct = [_row(*values) for values in groups.table().itertuples(index=False)]
    table = pd.DataFrame(distinct, columns=["family", *_QUANTITIES, "dtype"])
    table = typed(table, dict.fromkeys(_QUANTITIES, "Int64") | {"family": "category", "dtype": "category"})
    return table.iloc[groups.of_row].reset_index(drop=True)


def _row(name: str, shapes: object, dtypes: object, arguments: object) -> tuple[object, ...]:
    texts = [value if isinstance(value, str) else None for value in (shapes, dtypes, arguments)]
    found = work(name, Call.parse(*texts))
    if found is None:
        return (None,) * (len(_QUANTITIES) + 2)
    return (found.family, *(getattr(found, name) for name in _QUANTITIES), found.dtype)


def _innermost(tree: OperatorTree, marked: np.ndarray) -> np.ndarray:
    """Marked operators that hold no other marked one."""
    alone: np.ndarray = marked & (tree.nesting.summed_up(marked) == 1)
    return alone


def _calls_of_ops(tree: OperatorTree, counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    position = np.full(len(counts) + 1, NONE, dtype=np.int64)
    position[rows] = np.arange(len(rows))
    nearest = np.append(tree.nesting.handed_down(counts), NONE)
    owner = np.where(tree.owner >= 0, tree.owner, len(counts))
    found: np.ndarray = position[nearest[owner]]
    return found


def _with_list_types(trace: RankTrace, calls: pd.DataFrame, of_op: np.ndarray) -> pd.DataFrame:
    """Bytes and element type of calls on lists of tensors, by the first of their kernels whose name has types."""
    if not calls["list_elements"].notna().any():
        return calls.assign(dtype=calls["dtype"].astype("object").astype("category"))
    names = trace.gpu_ops["name"].cat
    types = pd.DataFrame([_list_type(name) for name in names.categories], columns=["dtype", "element_bytes"])
    kernels = types.reindex(names.codes).assign(call=of_op)
    first = kernels[of_op != NONE].dropna().drop_duplicates("call").set_index("call").reindex(calls.index)
    is_list = calls["list_elements"].notna() & first["dtype"].notna()
    moved = (calls["list_elements"] * first["element_bytes"].astype("Float64")).round().astype("Int64")
    dtypes = calls["dtype"].astype("object").where(~is_list, first["dtype"])
    return calls.assign(bytes=calls["bytes"].where(~is_list, moved), dtype=dtypes.astype("category"))


def _list_type(kernel: str) -> tuple[str | None, float | None]:
    """Type that it writes, and bytes of an element: a copy between two types moves as many of each."""
    types = list_types(kernel)
    sizes = [known for name in types if (known := size((1,), name)) is not None]
    return (types[0], sum(sizes) / len(sizes)) if sizes and len(sizes) == len(types) else (None, None)


def _gpu_columns(trace: RankTrace, of_op: np.ndarray, count: int) -> dict[str, object]:
    ops = trace.gpu_ops
    held = trace.counted & (of_op != NONE)
    durations = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, of_op[held], durations[held])
    says = np.array([uses_tensor_cores(name) for name in ops["name"].cat.categories] + [None], dtype=object)
    said = says[ops["name"].cat.codes.to_numpy()]
    yes, no = (np.bincount(of_op[held & (said == answer)], minlength=count) for answer in (True, False))
    return {
        "gpu_ops": np.bincount(of_op[held], minlength=count),
        "gpu_ns": total,
        "on_tensor_cores": pd.arrays.BooleanArray(yes > 0, (yes == 0) & (no == 0)),
    }
