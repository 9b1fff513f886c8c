"""Compute that differs between ranks from step to step: no rank is late, but each step lasts as long as its longest."""

from collections.abc import Sequence

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.amounts import more_work_ns
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.what_ran import WhatRan
from traceanalyzer.analyses.once import once_of_tables
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.change import EVEN, Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.wide import by_step_and_rank
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, plain, severity
from traceanalyzer.findings.chance import is_beyond_chance
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.late.lateness import said
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.quantities import time_text

UNEVEN_PCT = 5.0
"""Of a step, by which the longest compute of a step exceeds the mean, on average over steps."""

IMBALANCE_PCT = 10.0
"""A rank that computes longer than the mean by this share of a step is worth a finding."""

_LASTING = 0.75
_HALF = 0.5


LEAST_OF_WORK_PCT = 1.0
"""Of a step: both of these where the ranks run more or larger kernels by fact."""


def uneven_steps(
    headline: Headline,
    steps: Steps,
    step_needs: StepNeeds,
    what_ran: WhatRan,
    episodes: Episodes,
    pipeline: Pipeline,
    replay: Replay,
    *,
    uneven_steps_pct: float = UNEVEN_PCT,
    uneven_work_pct: float = LEAST_OF_WORK_PCT,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
    imbalance_pct: float = IMBALANCE_PCT,
) -> list[Finding]:
    """Ranks compute unevenly, each longest in other steps, and even compute gains over 3 % of a step.

    Where they run more or larger kernels by fact, 1 % of a step is enough.

    A rank that is longest throughout, ranks late by compute in some steps, and stages of a pipeline are told otherwise.
    """
    if not len(headline) or len(pipeline) or any(row["cause"] == "compute" for row in said(episodes)):
        return []
    basis = Basis.of(headline, steps)
    wide = compute_by_step(step_needs)
    if wide.shape[0] < 2 or wide.shape[1] < 2:
        return []
    beyond_ns = float((wide.max(axis=1) - wide.mean(axis=1)).mean())
    step_ns = basis.step_ns
    beyond_pct = 100 * beyond_ns / max(step_ns, 1)
    if beyond_pct < uneven_work_pct or _is_one_ranks(wide, imbalance_pct / 100 * step_ns):
        return []
    gain = gain_of(replay, Change("compute", EVEN))
    gain_pct = gain.gain_pct if gain else 0.0
    if gain is None or gain_pct < uneven_work_pct:
        return []
    is_work = _is_other_work(wide, what_ran)
    if not is_work and (beyond_pct < uneven_steps_pct or gain_pct < clear_gain_pct):
        return []
    return [_found(wide, gain, is_work=is_work)]


def _found(wide: pd.DataFrame, gain: Gain, *, is_work: bool) -> Finding:
    """What is said of compute by step and rank, that gains so much when it is evened."""
    longest, always = wide.max(axis=1), _always_longest(wide)
    spread = (longest - wide.min(axis=1)).mean()
    same = "Work of equal size that takes unequal time, such as kernels beside communication, looks the same."
    return Finding(
        severity=severity(gain.gain_pct),
        title=Title(
            f"Ranks compute unevenly, {_how(always)}: in the same step "
            f"{time_text(spread)} lie between the shortest and the longest ({time_text(float(longest.mean()))}), "
            f"for which the others wait. Evened, {gain.whole} is ",
            Won.recorded(gain),
            ".",
        ),
        evidence=plain(_by_step(wide)),
        recommendation="Give all ranks as much in each step: batches of like lengths, packed sequences, "
        "as many tokens a batch, balanced experts.",
        caveat=None if is_work else same,
        **gained(gain),
        named=always,
        table="step_needs",
    )


def _by_step(wide: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "step": wide.index,
            "shortest_ns": wide.min(axis=1),
            "mean_ns": wide.mean(axis=1).round(),
            "longest_ns": wide.max(axis=1),
            "longest_rank": wide.idxmax(axis=1),
        }
    )


def _always_longest(wide: pd.DataFrame) -> tuple[int, ...]:
    """The rank that computes longest in every step; none where these are several."""
    longest = wide.idxmax(axis=1).unique()
    return (int(longest[0]),) if len(longest) == 1 else ()


def _how(always_longest: Sequence[int]) -> str:
    if not always_longest:
        return "another one longest from step to step"
    return f"rank {always_longest[0]} longest by another amount from step to step"


def _is_other_work(wide: pd.DataFrame, what_ran: WhatRan) -> bool:
    """Whether more or larger kernels make half of what the longest rank of each step has beyond the others."""
    ranks, longest = list(wide.columns), wide.idxmax(axis=1)
    work, beyond, more = what_ran.table, 0.0, 0.0
    of_step = {int(step): own for step, own in work.groupby("step")}
    for step, rank in longest.items():
        others = [other for other in ranks if other != rank]
        beyond += float(wide.loc[step, rank] - wide.loc[step, others].median())
        if int(step) in of_step:
            more += float(more_work_ns(of_step[int(step)], int(rank), others, [int(step)]).sum())
    return more >= _HALF * beyond > 0


def _is_one_ranks(wide: pd.DataFrame, least_ns: float) -> bool:
    """Whether one rank is longest throughout, by so much that it is said of it, or in all steps."""
    rank = int(wide.mean().idxmax())
    beyond = wide[rank].mean() - wide.mean(axis=1).mean()
    is_longest = bool((wide.idxmax(axis=1) == rank).all())
    return is_lasting(wide, rank) and (is_longest or bool(beyond >= least_ns))


def compute_by_step(step_needs: StepNeeds) -> pd.DataFrame:
    """Compute of the steps that were recorded whole, the last one too: a row for each step, a column for each rank."""
    return _compute_by_step(step_needs.table)


@once_of_tables
def _compute_by_step(held: pd.DataFrame) -> pd.DataFrame:
    held = held[held["step"].notna() & ~is_true(held["is_partial"])] if len(held) else held
    if held.empty:
        return pd.DataFrame()
    wide = by_step_and_rank(held.astype({"step": "int64"}), "compute_ns")
    return wide.dropna()


def is_lasting(wide: pd.DataFrame, rank: int) -> bool:
    """Whether the rank computes longer than the mean in most steps, by half of its mean excess or more.

    And that is at least half of what the longest of each step has beyond the mean: else the others' turns cost more.
    And it is more than chance deals out in so few steps.
    """
    if rank not in wide or wide.empty:
        return True
    if not is_beyond_chance(wide, [rank]):
        return False
    mean = wide.mean(axis=1)
    excess = wide[rank] - mean
    is_steady = (excess >= _HALF * excess.mean()).mean() >= _LASTING
    return bool(is_steady and excess.mean() >= _HALF * (wide.max(axis=1) - mean).mean())
