"""The rank that idles most for a reason, and what its host did then."""

from typing import Any

import pandas as pd

from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, mean_steps, per_step, plain

_LARGE = 0.5
"""Of the step with most."""

_NEARLY_ALL = 0.8


def worst_rank(
    headline: Headline, steps: Steps, idle: Idle, column: str, least_pct: float
) -> tuple[int, float, float, Basis] | None:
    """The rank with most of `column` in a mean step: rank, time, share; `None` when it is below `least_pct`."""
    if not len(headline) or not len(idle):
        return None
    basis = Basis.of(headline, steps)
    mean = mean_steps(idle, basis, [column, "window_ns"])
    if mean.empty:
        return None
    rank = int(mean[column].idxmax())
    cost_ns = float(mean.loc[rank, column])
    share = 100.0 * cost_ns / mean.loc[rank, "window_ns"] if cost_ns else 0.0
    return (rank, cost_ns, float(share), basis) if share >= least_pct else None


def few_steps(step_needs: StepNeeds, basis: Basis, rank: int, column: str) -> tuple[int, ...]:
    """The steps that hold nearly all of the rank's `column`, where these are less than half of all; else none.

    Of `step_needs`: time in which the GPU has nothing to do belongs to the step that the host is in.
    """
    if basis.steps is None or not len(step_needs):
        return ()
    held = basis.within(step_needs.table)
    own = held[held["rank"] == rank].set_index("step")[column].astype("float64")
    large = own[own >= _LARGE * own.max()]
    is_few = 2 * len(large) < len(own) and large.sum() >= _NEARLY_ALL * own.sum()
    return tuple(sorted(int(step) for step in large.index)) if is_few else ()


def by_activity(gaps: pd.DataFrame, basis: Basis, most: int = 5) -> tuple[dict[str, Any], ...]:
    """What the host did for longest in these gaps, in a mean step."""
    groups = gaps.groupby("doing")
    table = pd.DataFrame({"gaps": groups.size(), "length_ns": groups["length_ns"].sum()})
    top = table.sort_values("length_ns", ascending=False).head(most).reset_index()
    return plain(per_step(top, ["gaps", "length_ns"], basis.steps))


def longest(gaps: pd.DataFrame) -> tuple[int, int] | None:
    """Where the longest gap lies."""
    if gaps.empty:
        return None
    row = gaps.loc[gaps["length_ns"].astype("int64").idxmax()]
    return int(row["start_ns"]), int(row["end_ns"])
