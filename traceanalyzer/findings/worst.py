"""The rank that idles most for a reason, and what its host did then."""

from typing import Any

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, mean_steps, per_step, plain
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import rows_where

_LARGE = 0.5
"""Of the step with most; of all that few steps hold."""

_MOST = 0.6


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


def as_idle(mean: pd.DataFrame, column: str, least_pct: float) -> pd.Series:
    """Of ranks' mean steps (`mean_steps`, with `window_ns`) those with as much of `column`."""
    return (100.0 * mean[column] >= least_pct * mean["window_ns"]).astype(bool)


OF_ALL_STEPS = "of the time in all steps"
"""Whose share `Few.share_pct` is."""


class Few(Struct, frozen=True):
    """Steps that hold most of something, and how much each of them does."""

    steps: tuple[int, ...]
    mean_ns: float
    whole_ns: float
    """Of the rank's time in all steps that were looked at, those among them."""

    @property
    def words(self) -> str:
        """`In step 5`, `In steps 1 and 4`."""
        return f"In {numbered('step', self.steps)}"

    @property
    def mostly(self) -> str:
        """`Mostly in step 5`: of what is said of a mean step."""
        return f"Mostly in {numbered('step', self.steps)}"

    @property
    def cost(self) -> str:
        """`25.1 ms a step`: in each of them; `25.1 ms` where it is one."""
        return f"{time_text(self.mean_ns)}{' a step' if len(self.steps) > 1 else ''}"

    @property
    def share_pct(self) -> float:
        """Of the rank's time in all compared steps."""
        return 100.0 * self.mean_ns * len(self.steps) / self.whole_ns


def few_steps(step_needs: StepNeeds, basis: Basis, rank: int, column: str) -> Few | None:
    """The steps, less than half of all, whose excess over the others is most of the rank's `column`; else none.

    Of `step_needs`: time in which the GPU has nothing to do belongs to the step that the host is in. The last complete
    step's window ends in the step after it.
    """
    if basis.steps is None or not len(step_needs):
        return None
    table = rows_where(
        step_needs.table, (step_needs.table["rank"] == rank) & ~step_needs.table["is_partial"].astype(bool)
    )
    held = table[table["step"].isin([*basis.numbers, max(basis.numbers) + 1])]
    own = held.set_index("step")[column].astype("float64")
    is_large = own >= _LARGE * own.max()
    large, rest = own[is_large], own[~is_large]
    if 2 * len(large) >= len(own) or (large - rest.median()).sum() < _MOST * own.sum():
        return None
    whole_ns = float((held["end_ns"] - held["begin_ns"]).sum())
    return Few(tuple(sorted(int(step) for step in large.index)), float(large.mean()), whole_ns)


def few_steps_of(step_needs: StepNeeds, basis: Basis, rank: int, column: str, cost_ns: float) -> Few | None:
    """The same where `cost_ns`, of a mean step, is at least half of what these steps hold."""
    few = few_steps(step_needs, basis, rank, column)
    if few is None or cost_ns < _LARGE * few.mean_ns * len(few.steps) / basis.per:
        return None
    return few


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
