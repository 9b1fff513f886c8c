"""How evenly the ranks are loaded: variation of their times over the same steps, and of their memory."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, ratio, stack, typed
from traceanalyzer.analyses.names import BalanceColumn
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import without_rows

_TIMES = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns", "window_ns")

_ALWAYS_KNOWN = ("idle_ns", "window_ns")
"""The others are not, where a CUDA graph was recorded as one operation."""

PEAKS: Mapping[str, str] = {
    "peak_allocated_bytes": "memory_allocated_bytes",
    "peak_reserved_bytes": "memory_reserved_bytes",
}
"""Figure → the trace's counter whose largest value it is."""

OF_RUN, OF_EVENTS = "run.json: whole run", "[memory] events of the capture"


class Balance(Result[BalanceColumn]):
    """One row for each of the headline's times, and for peak memory where it is known of every rank."""

    title: ClassVar[str] = "Balance across ranks"
    keys: ClassVar[tuple[str, ...]] = ("figure",)
    columns: ClassVar[Mapping[str, Column]] = {
        "figure": Column.text(
            "What is compared: a column of the headline, or the most memory that PyTorch's allocator had given "
            "out (allocated), and held (reserved), at once.",
            written=Written.FIGURE,
        ),
        "basis": Column.text(
            "What the headline is of; for memory its source: the run's own record, else the capture's events.",
            is_secondary=True,
        ),
        "ranks": Column.count("Number of ranks.", is_compared=False),
        "mean_ns": Column.time("Mean over ranks; absent for memory.", adds=Adds.DERIVED),
        "std_ns": Column.time(
            "Standard deviation over ranks (population, ddof = 0); absent for memory.",
            adds=Adds.DERIVED,
            is_secondary=True,
        ),
        "mean_bytes": Column.size("Mean over ranks; absent for times.", adds=Adds.DERIVED),
        "std_bytes": Column.size(
            "Standard deviation over ranks (population, ddof = 0); absent for times.",
            adds=Adds.DERIVED,
            is_secondary=True,
        ),
        "cv": Column.number(
            "Coefficient of variation: standard deviation / mean; absent when the mean is 0.", label="std / mean"
        ),
        "max_ns": Column.time("Largest; absent for memory.", adds=Adds.EXTREME),
        "max_bytes": Column.size("Largest; absent for times.", adds=Adds.EXTREME),
        "max_rank": Column.ident("Rank that has it (the lowest of several)."),
        "min_ns": Column.time("Smallest; absent for memory.", adds=Adds.EXTREME),
        "min_bytes": Column.size("Smallest; absent for times.", adds=Adds.EXTREME),
        "min_rank": Column.ident("Rank that has it (the lowest of several)."),
        "max_over_mean": Column.number("Largest / mean.", label="max / mean"),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        mean, std, most = (table[f"{what}_ns"].fillna(table[f"{what}_bytes"]) for what in ("mean", "std", "max"))
        return self._with(table, {"cv": ratio(std, mean), "max_over_mean": ratio(most, mean)})


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's peak memory in the capture; no row without memory events."""
    names, values = trace.counters["name"], trace.counters["value"]
    peaks = {figure: values[names == counter].max() for figure, counter in PEAKS.items()}
    table = pd.DataFrame([peaks]).astype("Float64").round().astype("Int64")
    return table.dropna(how="all")


def across(
    parts: Mapping[int, pd.DataFrame],
    headline: Headline,
    run_memory: Mapping[int, Mapping[str, int]] | None = None,
) -> Balance:
    """Compare the ranks' headline times and peak memory; no rows with fewer than two ranks.

    `run_memory` is what the run itself recorded: rank → figure → bytes.
    """
    table = headline.table.sort_values("rank").set_index("rank") if len(headline) else headline.table
    if len(table) < 2:
        return Balance(without_rows(Balance.columns))
    basis = str(table["basis"].iloc[0])
    is_known = not table["opaque_ns"].any()
    rows = [_row(figure, basis, table[figure], "ns") for figure in _TIMES if is_known or figure in _ALWAYS_KNOWN]
    recorded = pd.DataFrame.from_dict({rank: dict(values) for rank, values in (run_memory or {}).items()}, "index")
    counted = stack(parts, ("rank", *PEAKS)).set_index("rank")
    for figure in PEAKS:
        for source, memory in ((OF_RUN, recorded), (OF_EVENTS, counted)):
            known = memory[figure].reindex(table.index) if figure in memory else pd.Series(pd.NA, index=table.index)
            if known.notna().all():
                rows.append(_row(figure, source, known, "bytes"))
                break
    return Balance(typed(pd.DataFrame(rows).reindex(columns=list(_DTYPES)), _DTYPES))


_DTYPES = {
    "figure": "str", "basis": "str", "ranks": "int64", "max_rank": "int64", "min_rank": "int64",
    **{f"{what}_{unit}": "Float64" for what in ("mean", "std") for unit in ("ns", "bytes")},
    **{f"{what}_{unit}": "Int64" for what in ("max", "min") for unit in ("ns", "bytes")},
}  # fmt: skip


def _row(figure: str, basis: str, values: pd.Series, unit: str) -> dict[str, object]:
    values = values.astype("int64")
    return {
        "figure": figure,
        "basis": basis,
        "ranks": len(values),
        f"mean_{unit}": float(values.mean()),
        f"std_{unit}": float(values.std(ddof=0)),
        f"max_{unit}": int(values.max()),
        "max_rank": int(values.idxmax()),
        f"min_{unit}": int(values.min()),
        "min_rank": int(values.idxmin()),
    }
