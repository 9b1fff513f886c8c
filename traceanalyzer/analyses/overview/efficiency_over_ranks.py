"""How well operators use their GPUs, all ranks in one row: what a roofline draws."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, is_true, ratio
from traceanalyzer.analyses.names import EfficiencyOverRanksColumn
from traceanalyzer.analyses.operators.efficiency import Efficiency
from traceanalyzer.meaning.columns import Column, Unit
from traceanalyzer.model.tables import without_rows

_KEYS = ("family", "operator", "shapes", "element_type", "peak_tflops_per_s", "peak_gbytes_per_s")


class EfficiencyOverRanks(Result[EfficiencyOverRanksColumn]):
    """One row for each operator, shapes and element type that do arithmetic; most GPU time first."""

    title: ClassVar[str] = "Efficiency of operators over ranks"
    keys: ClassVar[tuple[str, ...]] = _KEYS
    is_of_one_run: ClassVar[bool] = True
    is_detail: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        **{name: Efficiency.columns[name] for name in _KEYS},
        "flops": Column.flops("FLOPs without those that a causal mask makes unnecessary: sum over ranks."),
        "bytes": Column.size("The least that they must read and write: sum over ranks."),
        "gpu_ns": Column.time("Sum of their GPU operations' durations, over ranks."),
        "flops_per_byte": Column.number("Arithmetic intensity: flops / bytes."),
        "tflops_per_s": Column.rate("flops / GPU time, in 10¹² a second.", unit=Unit.TFLOPS_PER_S, label="arithmetic"),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        intensity, rate = ratio(table["flops"], table["bytes"]), ratio(table["flops"], table["gpu_ns"]) / 1000
        return self._with(table, {"flops_per_byte": intensity, "tflops_per_s": rate})


def across(_parts: Mapping[int, pd.DataFrame], efficiency: Efficiency) -> EfficiencyOverRanks:
    """Sum the ranks' rows of known FLOPs and bytes."""
    rows: pd.DataFrame = efficiency.to_frame()
    if rows.empty:
        return EfficiencyOverRanks(without_rows(EfficiencyOverRanks.columns))
    done = (rows["flops"] - rows["masked_flops"]).astype("Float64")
    held = rows.assign(flops=done)[is_true(done > 0) & is_true(rows["bytes"] > 0)]
    table = held.groupby(list(_KEYS), dropna=False, observed=True)[["flops", "bytes", "gpu_ns"]].sum().reset_index()
    table = table[table["gpu_ns"] > 0]
    return EfficiencyOverRanks(table.sort_values("gpu_ns", ascending=False, kind="stable", ignore_index=True))
