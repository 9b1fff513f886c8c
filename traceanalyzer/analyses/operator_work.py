"""The FLOPs and bytes of every recorded operator call, each counted once, and the GPU operations that did them."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.analyses.kernel_names import uses_tensor_cores
from traceanalyzer.analyses.operator_call import Call
from traceanalyzer.analyses.operator_tree import OperatorTree
from traceanalyzer.analyses.work import MODEL_FAMILIES, work
from traceanalyzer.model import NONE, RankTrace

_KEY = ["name", "shapes", "dtypes", "arguments"]


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """Work of the operators of a rank.

    Attributes:
        calls: a row for each operator that counts: `row` in `host_ops`, `family`, `flops`, `model_flops`,
            `masked_flops`, `bytes` (as in `work.Work`), `dtype`, `gpu_ops`, `gpu_ns` and `on_tensor_cores` (whether
            its kernels use them; NA when no name says).
        of_op: for each GPU operation the row in `calls` that it works for, -1 for none.
    """

    calls: pd.DataFrame
    of_op: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace, tree: OperatorTree) -> "OperatorWork":
        """Find the operators that count: the innermost with a formula, apart for matrix work and for the rest."""
        found = _work_of_calls(trace.host_ops)
        is_model = found["family"].isin(MODEL_FAMILIES).to_numpy()
        is_known = (found["flops"].notna() | found["bytes"].notna()).to_numpy()
        counts = _innermost(tree, is_model & is_known) | _innermost(tree, ~is_model & is_known)
        rows = np.flatnonzero(counts)
        of_op = _calls_of_ops(tree, counts, rows)
        calls = found.iloc[rows].assign(row=rows).reset_index(drop=True)
        return cls(calls.assign(**_gpu_columns(trace, of_op, len(rows))), of_op)


def _work_of_calls(ops: pd.DataFrame) -> pd.DataFrame:
    """Work of each operator by itself; computed once for each distinct call."""
    codes = ops.groupby(_KEY, observed=True, dropna=False, sort=False).ngroup().to_numpy()
    first = np.unique(codes, return_index=True)[1]
    distinct = [_row(*values) for values in ops.iloc[first][_KEY].itertuples(index=False)]
    columns = ("family", "flops", "model_flops", "masked_flops", "bytes", "dtype")
    table = pd.DataFrame(distinct, columns=columns)
    table = table.astype(dict.fromkeys(columns[1:5], "Int64") | {"family": "category", "dtype": "category"})
    return table.iloc[codes].reset_index(drop=True)


def _row(name: str, shapes: object, dtypes: object, arguments: object) -> tuple[object, ...]:
    texts = [value if isinstance(value, str) else None for value in (shapes, dtypes, arguments)]
    found = work(name, Call.parse(*texts))
    if found is None:
        return (None,) * 6
    return (found.family, found.flops, found.model_flops, found.masked_flops, found.bytes, found.dtype)


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
