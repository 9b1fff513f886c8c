"""Matrix products by phase, sizes and element type: how long each takes, alone and while the GPU communicates."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, ratio, stack
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.names import MatrixProductsColumn
from traceanalyzer.analyses.operators.operator_call import Call, Shape
from traceanalyzer.analyses.operators.operator_work import OperatorWork
from traceanalyzer.analyses.operators.work import work as work_of_call
from traceanalyzer.analyses.phases.op_phases import NAMES
from traceanalyzer.analyses.time.intervals import unions
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named, sorted_table, texts_of
from traceanalyzer.model.tables import array_of, column_of


class MatrixProducts(Result[MatrixProductsColumn]):
    """One row for each rank, phase, product and element type; longest first."""

    title: ClassVar[str] = "Matrix products"
    keys: ClassVar[tuple[str, ...]] = ("rank", "phase", "product", "dtype")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "phase": Column.text("Phase of training that launched it."),
        "product": Column.text(
            "Sizes of its factors: `[8192, 1024] × [1024, 4096]`; batched ones begin with the batch."
        ),
        "dtype": Column.text("Element type of the factors.", written=Written.DTYPE),
        "calls": Column.count("Calls of operators that launched GPU operations.", is_aside=True),
        "gpu_ns": Column.time("Sum of their kernels' durations.", leads=True),
        "calls_beside_comm": Column.count(
            "Those beside communication: it runs for at least half of their kernels' time.", is_aside=True
        ),
        "gpu_beside_comm_ns": Column.time("Sum of these calls' kernels."),
        "mean_ns": Column.time("GPU time / calls.", adds=Adds.DERIVED, better=Better.LESS),
        "mean_alone_ns": Column.time("The same of the calls that are not beside communication.", adds=Adds.DERIVED),
        "mean_beside_comm_ns": Column.time("The same of those beside it.", adds=Adds.DERIVED),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        alone = table["calls"] - table["calls_beside_comm"]
        return self._with(
            table,
            {
                "mean_ns": ratio(table["gpu_ns"], table["calls"]),
                "mean_alone_ns": ratio(table["gpu_ns"] - table["gpu_beside_comm_ns"], alone),
                "mean_beside_comm_ns": ratio(table["gpu_beside_comm_ns"], table["calls_beside_comm"]),
            },
        )


def per_rank(trace: RankTrace, work: OperatorWork, phase_of_op: np.ndarray) -> pd.DataFrame:
    """Add up equal products; none where the capture has no operators' shapes."""
    is_product = rows_named(work.calls, "family", "gemm")
    rows = np.flatnonzero(trace.counted & np.append(is_product, False)[work.of_op])
    if not len(rows):
        return pd.DataFrame()
    starts, ends = (array_of(trace.gpu_ops, name)[rows] for name in ("start_ns", "end_ns"))
    calls = Groups.of_numbers(work.of_op[rows])
    gpu_ns = calls.sums(ends - starts)
    is_beside = 2 * calls.sums(unions(trace)["comm"].covered_ns(starts, ends)) >= gpu_ns
    named = _products(trace.host_ops, array_of(work.calls, "row")[work.of_op[rows][calls.first]])
    phase = np.array(NAMES, dtype=object)[phase_of_op[rows][calls.first]]
    keys = ["phase", "product", "dtype"]
    groups = Groups.of({"phase": phase, **named}, keys, with_absent=True)
    summed = {
        **groups.keys,
        "calls": groups.counts(),
        "gpu_ns": groups.sums(gpu_ns),
        "calls_beside_comm": groups.sums(is_beside.astype(np.int64)),
        "gpu_beside_comm_ns": groups.sums(np.where(is_beside, gpu_ns, 0)),
    }
    return sorted_table(summed, "gpu_ns")


def across(parts: Mapping[int, pd.DataFrame]) -> MatrixProducts:
    """The ranks' rows under each other."""
    return MatrixProducts(stack(parts, tuple(MatrixProducts.columns)))


def _products(ops: pd.DataFrame, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Text and element type of the product of the operators in these rows; read once for each distinct call."""
    keys = ["name", "shapes", "dtypes"]
    groups = Groups.of({name: column_of(ops, name)[rows] for name in keys}, keys, with_absent=True)
    told = [*map(_product, *(texts_of(names).tolist() for names in groups.keys.values()))]
    found = {"product": [text for text, _ in told], "dtype": [dtype for _, dtype in told]}
    return {name: np.array(texts, dtype=object)[groups.of_row] for name, texts in found.items()}


def _product(name: str, shapes: str | None, dtypes: str | None) -> tuple[str, str | None]:
    found = work_of_call(name, Call.parse(shapes, dtypes, None))
    if found is None or found.factors is None:
        return name, None
    return " × ".join(map(_written, found.factors)), found.dtype


def _written(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"
