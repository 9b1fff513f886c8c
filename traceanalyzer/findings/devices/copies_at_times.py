"""The rule for copies that all ranks make now and then, such as those of a checkpoint, with nothing beside them."""

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.what_ran import WhatRan
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.alike import AS_LONG
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, mean_steps, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.lateness import said_with_gain
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.findings.worst import Few, few_steps
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import COPY


def copies_at_times(
    headline: Headline, steps: Steps, step_needs: StepNeeds, what_ran: WhatRan, episodes: Episodes, replay: Replay, *,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:  # fmt: skip
    """Steps, fewer than half, in which all ranks copy beside no other work: a mean step is 3 % shorter without.

    Of these each rank copies half as long as the one that does longest; of fewer ranks late ones are told. What every
    step has is no news: the parts of the mean step hold it.
    """
    if not len(headline) or not len(step_needs):
        return []
    basis = Basis.of(headline, steps)
    if basis.steps is None:
        return []
    copied = mean_steps(step_needs, basis, [COPY.column])[COPY.column]
    few = few_steps(step_needs, basis, int(copied.idxmax()), COPY.column)
    if few is None or any(row["cause"] == "copies" for row in said_with_gain(episodes)):
        return []
    held = step_needs.table[step_needs.table["step"].isin(few.steps)]
    by_rank = held.groupby("rank")[COPY.column].mean().astype("float64")
    gain = gain_of(replay, Change("copy", 0.0, steps=frozenset(few.steps)))
    if gain is None or gain.gain_pct < clear_gain_pct or by_rank.min() < AS_LONG * by_rank.max():
        return []
    what = _what(what_ran.table, int(copied.idxmax()), few)
    title = Title(
        f"{few.words} {_who(len(by_rank))} for {few.cost} while nothing else runs{what}: work that is done now and "
        f"then. Hidden, {gain.whole} is ",
        Won.recorded(gain, is_bound=True),
        ".",
    )
    return [_found(title, gain, few, held)]


def _found(title: Title, gain: Gain, few: Few, held: pd.DataFrame) -> Finding:
    return Finding(
        severity=severity(gain.gain_pct),
        title=title,
        evidence=plain(held[["step", "rank", COPY.column]]),
        recommendation="Copy on a stream of its own, in pieces beside the next steps' compute, or less often. What the "
        "next step changes has to be kept until it is copied.",
        gain_ns=gain.gain_ns,
        gain_error_ns=gain.error_ns,
        unprofiled_gain_ns=gain.unprofiled_gain_ns,
        is_of_ideal=True,
        steps=few.steps,
        table="step_needs",
    )


def _who(ranks: int) -> str:
    return {1: "the GPU copies", 2: "both GPUs copy"}.get(ranks, f"all {ranks:,} GPUs copy")


def _what(work: pd.DataFrame, rank: int, few: Few) -> str:
    """The copy that takes longest in these steps."""
    own = work[(work["part"] == COPY.column) & (work["rank"] == rank) & work["step"].isin(few.steps)]
    longest = own.groupby("name")["total_ns"].sum()
    return "" if longest.empty else f", most of it {short_name(str(longest.idxmax()))}"
