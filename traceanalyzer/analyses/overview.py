"""Figures over all ranks in few rows: what a report says first."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import (
    OF_A_MEAN_RANK,
    RANK,
    STORED_OF_A_MEAN_RANK,
    Result,
    all_known,
    is_true,
    ratio,
)
from traceanalyzer.analyses.blame.step_budget import StepNeeds, host_needs_ns
from traceanalyzer.analyses.grouping import Groups, places_of, sums_at
from traceanalyzer.analyses.host.cpu_time import HostWork, times_to_compare
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.operators.efficiency import Efficiency, Mfu
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases.phases import ExposedComm
from traceanalyzer.analyses.statistics import RATIO
from traceanalyzer.analyses.time import breakdown
from traceanalyzer.analyses.time.headline import Headline, steps_of
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.meaning.columns import Adds, Column, Unit, Written, declared
from traceanalyzer.meaning.vocabulary import (
    COMM,
    COMM_PARTS,
    COMPUTE,
    COPY,
    IDLE,
    IDLE_CAUSES,
    IDLE_PARTS,
    OPAQUE,
    PARTS,
    TRANSFER,
    Part,
)
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    columns_of,
    floats,
    nullable,
    sorted_by,
    with_columns,
)

# How well operators use their GPUs, all ranks in one row: what a roofline draws.


class EfficiencyOverRanks(Result):
    """One row for each operator, shapes and element type that do arithmetic; most GPU time first."""

    title = "Efficiency of operators over ranks"
    keys = ("family", "operator", "shapes", "element_type", "peak_tflops_per_s", "peak_gbytes_per_s")
    is_of_one_run = True
    is_detail = True
    columns = declared(
        **{name: Efficiency.columns[name] for name in keys},
        flops="FLOPs without those that a causal mask makes unnecessary: sum over ranks.",
        bytes="The least that they must read and write: sum over ranks.",
        gpu_ns="Sum of their GPU operations' durations, over ranks.",
        flops_per_byte=Column.number("Arithmetic intensity: flops / bytes."),
        tflops_per_s=Column.rate("flops / GPU time, in 10¹² a second.", unit=Unit.TFLOPS_PER_S, label="arithmetic"),
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        intensity, rate = ratio(table["flops"], table["bytes"]), ratio(table["flops"], table["gpu_ns"]) / 1000
        return table.assign(flops_per_byte=intensity, tflops_per_s=rate)


def efficiency_over_ranks_across(efficiency: Efficiency) -> EfficiencyOverRanks:
    """Sum the ranks' rows of known FLOPs and bytes."""
    rows = efficiency.to_frame()
    if rows.empty:
        return EfficiencyOverRanks.without_rows()
    done = (rows["flops"] - rows["masked_flops"]).astype("Float64")
    held = rows.assign(flops=done)[is_true(done > 0) & is_true(rows["bytes"] > 0)]
    groups = held.groupby([*EfficiencyOverRanks.keys], dropna=False, observed=True)
    table = groups[["flops", "bytes", "gpu_ns"]].sum().reset_index()
    return EfficiencyOverRanks(sorted_by(table[table["gpu_ns"] > 0], "gpu_ns"))


# What the hosts are longest in, all ranks in one row.


class HostWorkOverRanks(Result):
    """One row for each name, longest first: of a mean step, or of the capture where not all ranks have steps."""

    title = "Work on the CPU, mean over ranks"
    keys = ("role", "what", "name")
    is_of_one_run = True
    columns = declared(
        **{name: HostWork.columns[name] for name in keys},
        is_of_steps=Column.flag("Times are of a mean step; else of the capture.", is_secondary=True),
        ranks="Ranks that do it.",
        mean_ns="Time in it: mean over these ranks.",
        least_ns="Least of them.",
        most_ns="Most of them.",
    )


def host_work_over_ranks_across(host_work: HostWork) -> HostWorkOverRanks:
    """Compare the ranks that do the same."""
    if not len(host_work):
        return HostWorkOverRanks.without_rows()
    rows, is_of_steps = times_to_compare(host_work)
    times = rows.groupby([*HostWorkOverRanks.keys], sort=False, observed=True)["time_ns"]
    table = times.agg(ranks="size", mean_ns="mean", least_ns="min", most_ns="max").reset_index()
    return HostWorkOverRanks(sorted_by(table.assign(is_of_steps=is_of_steps), "mean_ns", kind="quicksort"))


# Operators, all ranks in one row: what a mean rank does of each.


class OperatorsOverRanks(Result):
    """One row for each operator and autograd pass that launches GPU work itself, longest first."""

    title = "Operators, mean over ranks"
    keys = ("operator", "autograd")
    stored = STORED_OF_A_MEAN_RANK
    is_of_one_run = True
    derived = OF_A_MEAN_RANK
    columns = declared(
        **{name: Operators.columns[name] for name in keys},
        share_pct="100 · own GPU time / that of all operators, all ranks together.",
        total_ns="Time of the GPU operations that it launches itself: mean over ranks.",
        calls="Calls on one rank: mean over ranks.",
        mean_ns="GPU time of its own of a call, all ranks together.",
    )


def operators_over_ranks_across(operators: Operators) -> OperatorsOverRanks:
    """Sum the ranks' rows of each operator."""
    rows = operators.table
    if rows.empty or not rows["gpu_own_ns"].any():
        return OperatorsOverRanks.without_rows()
    groups = rows.groupby([*OperatorsOverRanks.keys], dropna=False, observed=True)
    sums = groups.agg(all_calls=("calls", "sum"), all_ns=("gpu_own_ns", "sum")).astype("Int64").reset_index()
    table = sums[sums["all_ns"] > 0].assign(ranks=rows["rank"].nunique())
    return OperatorsOverRanks(sorted_by(table, "all_ns"))


# Where each rank's mean step goes, part by part, and what its host and GPU need for a step by themselves.


EVERY = (*PARTS, *COMM_PARTS, *IDLE_PARTS)
"""The parts that add up to a window, those of exposed communication, and those of idle time."""

_EVERY = tuple(part.column for part in EVERY)

_HIDDEN = (COMPUTE, COMM, COPY, *COMM_PARTS)
"""Parts that are not known of a window in which something unknown runs."""

_DEFINED: Mapping[str, Column] = {
    **{part.column: Column.time(part.definition, adds=Adds.DERIVED) for part in (*PARTS, *COMM_PARTS)},
    **{
        cause.column: Column.time(f"Of idle time: {cause.label}. {cause.definition}", adds=Adds.DERIVED)
        for cause in IDLE_CAUSES
    },
}


class TimeParts(breakdown.OfKnownWork):
    """One row for each rank: a mean step of `headline`, or the capture where it is of that.

    The parts of exposed communication, and of idle time, add up to it; they are absent where they do not.
    """

    title = "Parts of a mean step"
    keys = ("rank",)
    is_of_one_run = True
    hidden = (
        *(part.column for part in COMM_PARTS),
        *(part.share for part in _HIDDEN),
        "gpu_needs_ns",
    )
    columns = declared(
        rank=RANK,
        basis=Column.text("What the row is of, as in `headline`.", is_secondary=True),
        steps="Number of its steps; absent for a whole capture.",
        window_ns=Column.spent("Length of a mean step, or of the capture.", adds=Adds.DERIVED),
        **_DEFINED,
        host_needs_ns=Column.time(
            "CPU time of a step: the step's range on it less the calls in which it waits for the "
            "GPU; absent without steps, or where it is not known of each.",
            adds=Adds.DERIVED,
        ),
        gpu_needs_ns=Column.time(
            "What the GPU needs by itself, without its waits and its idling: compute, exposed transfers and copies; "
            "absent without steps, or where transfers are not separated from waits.",
            adds=Adds.DERIVED,
        ),
        **{part.share: Column.share(f"100 · {part.column} / window.", is_secondary=True) for part in EVERY},
    )


def time_parts_across(
    headline: Headline,
    steps: Steps,
    exposed_comm: ExposedComm,
    idle: Idle,
    step_needs: StepNeeds,
) -> TimeParts:
    """Take the headline's parts, divide communication and idle time, and take the mean over its steps."""
    if not len(headline):
        return TimeParts.without_rows()
    # The parts that add up: of a window with unknown time those that are known are too small, and the words say so.
    table = headline.table[["rank", "basis", "steps", "window_ns", *breakdown.PARTS]].reset_index(drop=True)
    chosen = steps_of(headline, steps)
    table = divided(table, _of_ranks(exposed_comm, chosen), COMM, COMM_PARTS, ["rank"])
    table = divided(table, _of_ranks(idle, chosen), IDLE, IDLE_PARTS, ["rank"])
    steps_in, times = floats(table["steps"]), {name: floats(table[name]) for name in ("window_ns", *_EVERY)}
    count, window = np.nan_to_num(steps_in, nan=1.0), times["window_ns"]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = {name: own / count for name, own in times.items()}
        shares = {part.share: 100.0 * (times[part.column] / window) for part in EVERY}
    gpu_ns = means[COMPUTE.column] + means[TRANSFER.column] + means[COPY.column]
    means["gpu_needs_ns"] = np.where(np.isnan(steps_in), np.nan, gpu_ns)
    means["host_needs_ns"] = table["rank"].map(_hosts(step_needs, chosen)).to_numpy(dtype=np.float64)
    known = {name: pd.arrays.FloatingArray(own, ~np.isfinite(own)) for name, own in (means | shares).items()}
    return TimeParts(with_columns(table, **known))


def leaves(table: pd.DataFrame) -> tuple[Part, ...]:
    """The parts of these rows that add up to their windows: wholes where they are not divided."""
    comm = COMM_PARTS if table[TRANSFER.column].notna().any() else (COMM,)
    idle = IDLE_PARTS if table[IDLE_PARTS[0].column].notna().any() else (IDLE,)
    return (COMPUTE, *comm, COPY, OPAQUE, *idle)


def _hosts(needs: StepNeeds, steps: list[int]) -> pd.Series:
    """Mean over the steps, of ranks of which each is known."""
    own = needs.table[needs.table["step"].isin(steps)]
    return host_needs_ns(own, least=len(steps)) if len(own) else pd.Series(dtype="float64")


class StepTimeParts(breakdown.OfKnownWork):
    """One row for each rank and step that has a window, divided as `time_parts` divides a mean step."""

    title = "Parts of each step"
    keys = ("rank", "step")
    is_of_one_run = True
    is_detail = True
    hidden = tuple(part.column for part in COMM_PARTS)
    columns = declared(
        rank=RANK,
        step="Step.",
        is_complete="Neither open nor partial: counts in means.",
        window_ns=Column.spent("Length of the step's GPU window."),
        **{name: Column.time(column.definition) for name, column in _DEFINED.items()},
    )


def of_steps(steps: Steps, exposed_comm: ExposedComm, idle: Idle) -> StepTimeParts:
    """Divide communication and idle time of each step."""
    held = steps.table[steps.table["step"].notna() & steps.table["window_ns"].notna()]
    if held.empty:
        return StepTimeParts.without_rows()
    keys = ["rank", "step"]
    table = held[[*keys, "is_complete", "window_ns", *breakdown.PARTS]].reset_index(drop=True)
    table = divided(table, _of_each(exposed_comm), COMM, COMM_PARTS, keys)
    return StepTimeParts(divided(table, _of_each(idle), IDLE, IDLE_PARTS, keys))


def _of_ranks(detail: Result, steps: list[int]) -> pd.DataFrame:
    """The rows of these steps; none: that of the whole capture."""
    table = detail.to_frame()
    return table[table["step"].isin(steps) if steps else table["step"].isna()]


def _of_each(detail: Result) -> pd.DataFrame:
    table = detail.to_frame()
    return table[table["step"].notna()]


def divided(
    table: pd.DataFrame, rows: pd.DataFrame, whole: Part, parts: tuple[Part, ...], keys: list[str]
) -> pd.DataFrame:
    """The table with `whole`'s parts as columns, summed over these rows; absent unless they add up on every row."""
    columns = [part.column for part in parts]
    if len(rows):
        place = places_of(rows, table, keys)
        held, own = place[place != NONE], rows[place != NONE]
        if len(np.unique(held)) == len(table) and own[columns].notna().all(axis=None):
            sums = {name: sums_at(held, own[name].to_numpy(dtype=np.int64), len(table)) for name in columns}
            if np.array_equal(sum(sums.values()), table[whole.column].to_numpy(dtype=np.int64)):
                return with_columns(table, **{name: all_known(values) for name, values in sums.items()})
    absent = nullable(np.zeros(len(table), dtype=np.int64), np.ones(len(table), dtype=bool))
    return with_columns(table, **dict.fromkeys(columns, absent))


# What the ranks' figures are on the whole: their mean, and who has least and most.


Figure = str


class OverRanks(Result):
    """One row for each figure: a mean step's length and its spread, and what share of it each part takes.

    Means are over the ranks of which it is known.
    """

    title = "Figures over ranks"
    keys = ("figure",)
    is_of_one_run = True
    columns = declared(
        figure=Column.text("A column of `time_parts`, `headline` or `mfu`.", written=Written.FIGURE),
        ranks="Ranks of which it is known.",
        mean_ns="Mean over ranks; absent for shares.",
        least_ns="Smallest; absent for shares.",
        most_ns="Largest; absent for shares.",
        mean_pct="Mean over ranks; absent for times.",
        least_pct=Column.share("Smallest; absent for times.", adds=Adds.EXTREME),
        most_pct=Column.share("Largest; absent for times.", adds=Adds.EXTREME),
        least_rank="Rank that has least (the first of several).",
        most_rank="Rank that has most (the first of several).",
    )

    def of(self, figure: Figure) -> Mapping[str, Any]:
        """The row of a figure; without values where it is unknown."""
        absent = dict.fromkeys(self.columns) | {"figure": "", "ranks": 0}
        return next((row for row in self.rows() if row["figure"] == figure), absent)


def over_ranks_across(time_parts: TimeParts, headline: Headline, mfu: Mfu) -> OverRanks:
    """Compare the ranks, one of them alone as well."""
    if not len(headline):
        return OverRanks.without_rows()
    parts = time_parts.to_frame().set_index("rank")
    heads = headline.to_frame().set_index("rank")
    times: dict[Figure, pd.Series] = {"window_ns": parts["window_ns"], "step_std_ns": heads["step_std_ns"]}
    shares = {part.share: parts[part.share] for part in EVERY}
    shares |= {"fused_pct": heads["fused_pct"], "overlap_pct": heads["overlap_pct"], "mfu_pct": mfu.by_rank()}
    rows = [_row(name, values, "ns") for name, values in times.items()]
    rows += [_row(name, values, "pct") for name, values in shares.items()]
    types = dict.fromkeys(OverRanks.columns, "Float64") | {"figure": "str", "ranks": "int64"}
    types |= dict.fromkeys(("least_rank", "most_rank"), "Int64")
    return OverRanks(pd.DataFrame(rows, columns=[*OverRanks.columns]).astype(types))


def _row(figure: str, values: pd.Series, unit: str) -> dict[str, Any]:
    known = values.astype("float64").dropna()
    row = {"figure": figure, "ranks": len(known)}
    if not len(known):
        return row
    ends = {"least": known.idxmin(), "most": known.idxmax()}
    row |= {f"{which}_rank": rank for which, rank in ends.items()}
    return row | {f"mean_{unit}": known.mean(), **{f"{which}_{unit}": known[rank] for which, rank in ends.items()}}


# Each step over all ranks: the mean of its parts, and the shortest and the longest rank's step.


class StepsOverRanks(breakdown.OfKnownWork):
    """One row for each step that a rank has a window of."""

    title = "Steps over ranks"
    keys = ("step",)
    is_of_one_run = True
    hidden = tuple(part.column for part in COMM_PARTS)
    columns = declared(
        step="Step.",
        ranks="Ranks that have it.",
        is_complete="It is complete on each of them.",
        shortest_ns="Shortest rank's step.",
        longest_ns="Longest rank's step.",
        window_ns=Column.time("Mean over ranks, of the step's GPU window and of its parts.", adds=Adds.DERIVED),
        **{
            part.column: Column.time(f"Mean over ranks. {StepTimeParts.columns[part.column].definition}", Adds.DERIVED)
            for part in EVERY
        },
    )


def steps_over_ranks_across(step_time_parts: StepTimeParts) -> StepsOverRanks:
    """Put the ranks' rows of each step together."""
    if not len(step_time_parts):
        return StepsOverRanks.without_rows()
    columns = columns_of(step_time_parts.table)
    groups = Groups.of({"step": columns["step"].to_numpy(dtype=np.int64)})
    windows = columns["window_ns"].to_numpy(dtype=np.int64)
    means = {  # absent where one is
        name: np.bincount(groups.of_row, floats(columns[name])) / groups.counts() for name in ("window_ns", *_EVERY)
    }
    return StepsOverRanks(
        groups.table(
            ranks=groups.counts(),
            is_complete=~groups.any(~columns["is_complete"].to_numpy(dtype=bool)),
            shortest_ns=groups.smallest(windows),
            longest_ns=groups.largest(windows),
            **{name: pd.arrays.FloatingArray(own, np.isnan(own)) for name, own in means.items()},
        )
    )


# Ranks whose time is split unlike the median rank's, and those that differ by about as much as each other.


class UnlikeRanks(Result):
    """One row for each rank and part whose share of its window is far from the median rank's, the farthest first."""

    title = "Ranks unlike the others"
    keys = ("rank", "part")
    is_of_one_run = True
    columns = declared(
        rank=RANK,
        part=Column.text("A part of its time: a column of `time_parts`.", written=Written.FIGURE),
        time_ns=Column.time("Its time in a mean step, or the capture.", adds=Adds.DERIVED),
        median_ns="The same, of the median rank.",
        away_ns=Column.time("How far the one is from the other.", adds=Adds.DERIVED),
        alike_ranks="The ranks, itself among them, that differ by about as much, the same way.",
        alike_ns=Column.time("Their median time.", adds=Adds.DERIVED),
        alike_away_ns=Column.time("How far that is from the median rank's.", adds=Adds.DERIVED),
    )


def unlike_ranks_across(
    time_parts: TimeParts,
    unlike_points: float = 2.0,
    unlike_deviations: float = 5.0,
) -> UnlikeRanks:
    """Ranks more than so many median deviations, and percentage points, from a part's median share."""
    if len(time_parts) < 3:  # of two both are as far from their median
        return UnlikeRanks.without_rows()
    table, parts = time_parts.table.set_index("rank"), leaves(time_parts.table)
    shares = table[[part.share for part in parts]].astype("float64")
    times = table[[part.column for part in parts]].astype("float64")
    away = (shares - shares.median()).abs()
    is_far = away > np.maximum(unlike_points, unlike_deviations * away.median())
    far = times.where(is_far.to_numpy()).melt(ignore_index=False, var_name="part", value_name="time_ns")
    far = far.dropna().reset_index()
    far["median_ns"] = far["part"].map(times.median())
    far["away_ns"] = (far["time_ns"] - far["median_ns"]).abs()
    far = far.sort_values("away_ns", ascending=False, kind="stable", ignore_index=True)
    # In order of distance: each begins a set, or is of the last one of its part that differs the same way.
    ways = [far["part"], far["time_ns"] > far["median_ns"]]
    begins = far["away_ns"] < (2 - RATIO) * far.groupby(ways)["away_ns"].shift()
    sets = far.groupby([*ways, begins.groupby(ways).cumsum()])
    far["alike_ranks"] = sets["rank"].transform(lambda own: ",".join(map(str, sorted(own))))
    far["alike_ns"] = sets["time_ns"].transform("median")
    far["alike_away_ns"] = (far["alike_ns"] - far["median_ns"]).abs()
    return UnlikeRanks(far.astype({"alike_ranks": "str", "part": "str"}))
