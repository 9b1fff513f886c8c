"""The figures that speak for a rank, and how evenly ranks are loaded."""

from collections import Counter
from collections.abc import Mapping

import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, percent, ratio, stack
from traceanalyzer.analyses.time import breakdown as time_breakdown
from traceanalyzer.analyses.time.breakdown import Breakdown
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.meaning.vocabulary import FUSED, PARTS
from traceanalyzer.model import RankTrace
from traceanalyzer.selection import steps_text

# The figures that speak for a rank: its complete steps, or the whole capture when there are none.


_SUMMED = ("window_ns", *time_breakdown.PARTS, "comm_ns", "fused_ns")


class Headline(Result):
    """One row for each rank, over the steps that are complete on every rank that has steps."""

    title = "Headline figures"
    keys = ("rank",)
    is_of_one_run = True
    columns = {
        "rank": RANK,
        "basis": Column.text(
            "What the row is of: complete steps that all ranks share; without any, what is looked at.",
            is_secondary=True,
        ),
        "steps": Column.count("Number of those steps; absent for a whole capture.", adds=Adds.NONE),
        "step_mean_ns": Column.time(
            "Mean length of the steps' GPU windows.", adds=Adds.DERIVED, better=Better.LESS, alias="step_ns"
        ),
        "step_std_ns": Column.time(
            "Sample standard deviation of the same; absent with fewer than two steps.", adds=Adds.DERIVED
        ),
        **time_breakdown.DEFINITIONS,
        "window_ns": Column.time("Sum of the steps' GPU windows, or the capture's window.", better=Better.LESS),
        "compute_pct": Column.share("100 · compute / window.", better=Better.MORE),
        "fused_pct": Column.share("100 · fused / window: a part of compute."),
        "exposed_comm_pct": Column.share("100 · exposed communication / window.", better=Better.LESS),
        "exposed_copy_pct": Column.share("100 · exposed copies / window.", better=Better.LESS),
        "opaque_pct": Column.share("100 · unknown / window."),
        "idle_pct": Column.share("100 · idle / window.", better=Better.LESS),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        table = time_breakdown.known_only(table)
        shares = {part.share: percent(table[part.column], table["window_ns"]) for part in (*PARTS, FUSED)}
        mean = ratio(table["window_ns"], table["steps"])
        return time_breakdown.with_overlap(table).assign(**shares).assign(step_mean_ns=mean)


def headline_across(breakdown: Breakdown, steps: Steps, ranks: Ranks) -> Headline:
    """Sum the complete steps that every rank has; without such steps take the breakdown of what is looked at."""
    complete = complete_steps(steps.table)
    shared = shared_steps(complete, set(breakdown.table["rank"]))
    if not shared:
        window = ranks.table.set_index("rank")["window"]
        table = breakdown.table.assign(basis=breakdown.table["rank"].map(window), steps=pd.NA, step_std_ns=pd.NA)
        return Headline(table.astype({"steps": "Int64", "step_std_ns": "Float64"}))
    chosen = complete[complete["step"].isin(shared)]
    by_rank = chosen.groupby("rank")
    table = by_rank[list(_SUMMED)].sum().astype("int64")
    table["steps"] = by_rank.size().astype("Int64")
    table["step_std_ns"] = by_rank["window_ns"].std(ddof=1).astype("Float64")
    return Headline(table.reset_index().assign(basis=steps_text(shared)))


def steps_of(headline: Result, steps: Result) -> list[int]:
    """Numbers of the steps that the headline is of; none when it is of the whole capture."""
    rows, steps_rows = headline.table, steps.table
    if rows.empty or steps_rows.empty or rows["steps"].isna().all():
        return []
    complete = complete_steps(steps_rows)
    return shared_steps(complete, set(rows["rank"]))


def shared_steps(complete: pd.DataFrame, ranks: set[int]) -> list[int]:
    """Numbers of the steps that are complete on every rank."""
    if complete.empty:
        return []
    # Not grouped by pandas: of a few rows that takes fifty times as long.
    pairs = zip(complete["step"].tolist(), complete["rank"].tolist(), strict=True)
    holders = Counter(step for step, _ in {pair for pair in pairs if not pd.isna(pair[0])})
    return sorted(int(step) for step, count in holders.items() if count == len(ranks))


# How evenly the ranks are loaded: variation of their times over the same steps, and of their memory.


_TIMES = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns", "window_ns")

_ALWAYS_KNOWN = ("idle_ns", "window_ns")
"""The others are not, where a CUDA graph was recorded as one operation."""

PEAKS: Mapping[str, str] = {
    "peak_allocated_bytes": "memory_allocated_bytes",
    "peak_reserved_bytes": "memory_reserved_bytes",
}
"""Figure → the trace's counter whose largest value it is."""

OF_RUN, OF_EVENTS = "run.json: whole run", "[memory] events of the capture"


class Balance(Result):
    """One row for each of the headline's times, and for peak memory where it is known of every rank."""

    title = "Balance across ranks"
    keys = ("figure",)
    stored = ("std",)
    columns = {
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
        "mean_bytes": Column.size("Mean over ranks; absent for times.", adds=Adds.DERIVED),
        "cv": Column.number(
            "Coefficient of variation: standard deviation / mean; absent when the mean is 0.", label="std / mean"
        ),
        "max_ns": Column.time("Largest; absent for memory.", adds=Adds.EXTREME),
        "max_bytes": Column.size("Largest; absent for times.", adds=Adds.EXTREME),
        "max_rank": Column.ident("Rank that has it (the lowest of several)."),
        "max_over_mean": Column.number("Largest / mean.", label="max / mean"),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        mean, most = (table[f"{what}_ns"].fillna(table[f"{what}_bytes"]) for what in ("mean", "max"))
        return table.assign(cv=ratio(table["std"], mean), max_over_mean=ratio(most, mean))


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's peak memory in the capture; no row without memory events."""
    names, values = trace.counters["name"], trace.counters["value"]
    peaks = {figure: values[names == counter].max() for figure, counter in PEAKS.items()}
    table = pd.DataFrame([peaks]).astype("Float64").round().astype("Int64")
    return table.dropna(how="all")


def balance_across(
    parts: Mapping[int, pd.DataFrame],
    headline: Headline,
    run_memory: Mapping[int, Mapping[str, int]] | None = None,
) -> Balance:
    """Compare the ranks' headline times and peak memory; no rows with fewer than two ranks.

    `run_memory` is what the run itself recorded: rank → figure → bytes.
    """
    table = headline.table.sort_values("rank").set_index("rank") if len(headline) else headline.table
    if len(table) < 2:
        return Balance.without_rows()
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
    return Balance(pd.DataFrame(rows).reindex(columns=list(_DTYPES)).astype(_DTYPES))


_DTYPES = {
    "figure": "str", "basis": "str", "ranks": "int64", "max_rank": "int64", "std": "Float64", "mean_ns": "Float64",
    "mean_bytes": "Float64", "max_ns": "Int64", "max_bytes": "Int64",
}  # fmt: skip


def _row(figure: str, basis: str, values: pd.Series, unit: str) -> dict[str, object]:
    values = values.astype("int64")
    return {
        "figure": figure,
        "basis": basis,
        "ranks": len(values),
        "std": float(values.std(ddof=0)),
        f"mean_{unit}": float(values.mean()),
        f"max_{unit}": int(values.max()),
        "max_rank": int(values.idxmax()),
    }
