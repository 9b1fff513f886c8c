"""The figures that speak for a rank: its complete steps, or the whole capture when there are none."""

from collections import Counter

import pandas as pd

from traceanalyzer.analyses.base import RANK, Result
from traceanalyzer.analyses.time import breakdown as time_breakdown
from traceanalyzer.analyses.time.breakdown import Breakdown
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Adds, Better, Column, declared
from traceanalyzer.meaning.vocabulary import FUSED, PARTS
from traceanalyzer.selection import steps_text

_SUMMED = ("window_ns", *time_breakdown.PARTS, "comm_ns", "fused_ns")


class Headline(time_breakdown.OfKnownWork):
    """One row for each rank, over the steps that are complete on every rank that has steps."""

    title = "Headline figures"
    keys = ("rank",)
    is_of_one_run = True
    derived = {
        **time_breakdown.OVERLAPPED,
        **{part.share: f"{part.column} / window_ns" for part in (*PARTS, FUSED)},
        "step_mean_ns": "window_ns / steps",
    }
    columns = declared(
        rank=RANK,
        basis="What the row is of: complete steps that all ranks share; without any, what is looked at.",
        steps="Number of those steps; absent for a whole capture.",
        step_mean_ns=Column.spent("Mean length of the steps' GPU windows.", adds=Adds.DERIVED, alias="step_ns"),
        step_std_ns=Column.time(
            "Sample standard deviation of the same; absent with fewer than two steps.", adds=Adds.DERIVED
        ),
        **time_breakdown.DEFINITIONS,
        compute_pct=Column.share("100 · compute / window.", better=Better.MORE),
        fused_pct="100 · fused / window: a part of compute.",
        exposed_comm_pct=Column.share("100 · exposed communication / window.", better=Better.LESS),
        exposed_copy_pct=Column.share("100 · exposed copies / window.", better=Better.LESS),
        opaque_pct="100 · unknown / window.",
        idle_pct="100 · idle / window.",
    ) | declared(window_ns="Sum of the steps' GPU windows, or the capture's window.")


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
