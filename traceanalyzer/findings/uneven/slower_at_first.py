"""Whether all GPUs are slower in the first recorded steps than later, at the same work: means tell of both."""

import pandas as pd

from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.findings.capture.warm_up import WARM_UP
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.uneven.uneven_steps import compute_by_step
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.quantities import time_text

SLOWER_FIRST_TIMES = 1.2
"""Times as long as in any later step: GPUs at one clock differ by less from step to step."""

_LEAST_LATER = 2

_AS_MANY = 0.01
"""Part by which operations of steps that do the same may differ in number."""


def slower_at_first(
    step_needs: StepNeeds, *, slower_first_times: float = SLOWER_FIRST_TIMES, warm_up_times: float = WARM_UP
) -> list[Finding]:
    """All GPUs compute 1.2 times as long in the first steps as in any later one, by as many operations.

    Three times as long is a warm-up, which has a rule of its own; so have steps that run more. Two steps at least
    follow, and no fewer than are slower.
    """
    wide = _of_as_many(compute_by_step(step_needs), step_needs)
    fits = [count for count in range(1, len(wide) // 2 + 1) if _are_slower(wide, count, slower_first_times)]
    if not fits:
        return []
    first, later = wide.iloc[: fits[-1]], wide.iloc[fits[-1] :]
    times = (first.mean() / later.mean()).median()
    if times >= warm_up_times:
        return []
    ranks = wide.shape[1]
    who = {1: "the GPU takes", 2: "both GPUs take"}.get(ranks, f"all {ranks:,} GPUs take")
    each = " a step" if len(first) > 1 else ""
    return [
        Finding(
            severity="medium",
            title=f"In {numbered('step', first.index)}, the capture's first, {who} {times:.3g} times as long for as "
            f"many operations as in later ones ({time_text(first.mean(axis=1).mean())} of compute{each}, then "
            f"{time_text(later.mean(axis=1).mean())}).",
            recommendation="Likely they were not warm: clocks, caches, first sizes. Leave "
            f"{'it' if len(first) == 1 else 'them'} out: --steps {later.index[0]}:. Next time record after more steps "
            "of warm-up: torch.profiler.schedule(warmup=…).",
            caveat="Means over steps hold them too.",
            is_about_capture=True,
            steps=tuple(int(step) for step in first.index),
            table="step_needs",
        )
    ]


def _are_slower(wide: pd.DataFrame, count: int, times: float) -> bool:
    """Whether every rank computes so many times as long in each of the first steps as in any later one."""
    first, later = wide.iloc[:count], wide.iloc[count:]
    return len(later) >= _LEAST_LATER and bool((first.min() >= times * later.max()).all() and later.min().min() > 0)


def _of_as_many(wide: pd.DataFrame, step_needs: StepNeeds) -> pd.DataFrame:
    """The steps if each rank launches as many operations in all of them; none else."""
    if wide.empty:
        return wide
    held = step_needs.table[step_needs.table["step"].isin(wide.index) & step_needs.table["rank"].isin(wide.columns)]
    counts = held.groupby("rank")["operations"].agg(["min", "max"])
    return wide if (counts["max"] <= (1 + _AS_MANY) * counts["min"]).all() else wide.iloc[:0]
