"""Figures over all ranks in few rows: what a report says first."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses import breakdown
from traceanalyzer.analyses.base import (
    OF_A_MEAN_RANK,
    RANK,
    STORED_OF_A_MEAN_RANK,
    Result,
    is_true,
)
from traceanalyzer.analyses.blame.step_budget import StepNeeds, host_needs_ns
from traceanalyzer.analyses.breakdown import Headline, Steps, steps_of
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases import ExposedComm
from traceanalyzer.analyses.statistics import RATIO
from traceanalyzer.meaning.columns import Adds, Column, Written, declared
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
from traceanalyzer.model.tables import (
    floats,
    sorted_by,
    with_columns,
)

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
        basis="What the row is of, as in `headline`.",
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


def parts_of_steps(steps: Steps, exposed_comm: ExposedComm, idle: Idle) -> pd.DataFrame:
    """A row for each rank and step that has a window, divided as `time_parts` divides a mean step."""
    if not len(steps):
        return steps.to_frame()
    keys = ["rank", "step"]
    held = steps.table[steps.table["step"].notna() & steps.table["window_ns"].notna()]
    table = held[[*keys, "is_complete", "window_ns", *breakdown.PARTS]].reset_index(drop=True)
    table = divided(table, _of_each(exposed_comm), COMM, COMM_PARTS, keys)
    return divided(table, _of_each(idle), IDLE, IDLE_PARTS, keys)


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
    sums = rows.dropna(subset=columns).groupby(keys, as_index=False)[columns].sum()
    own = table[keys].merge(sums, "left", keys)[columns].astype("Int64")
    if not is_true(own.sum(axis=1, skipna=False) == table[whole.column]).all():
        own = pd.DataFrame(pd.NA, own.index, columns, dtype="Int64")
    return table.assign(**own)


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
