"""Waits within steps: in one exchange one rank comes last, in the next another; over a step none needs more."""

from typing import Any

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.roles import with_roles
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.stragglers import Stragglers
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.change import EVEN, Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, mean_steps, plain, severity
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.late.lateness import said_with_gain
from traceanalyzer.findings.tools import tools_of
from traceanalyzer.findings.uneven.uneven_steps import compute_by_step
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.quantities import time_span, time_text
from traceanalyzer.meaning.sentences import with_article
from traceanalyzer.meaning.vocabulary import IDLE_CAUSES

WAITING_PCT = 5.0
"""Of a step: the mean rank waits longer."""

_MOST_OF_ONE = 0.6
"""Of all waits: if more are for one rank that waits less itself, it is late, not each in turn."""

_AS_LONG = 0.5
"""Of the ranks' mean wait: one that waits so long itself is late at one place of a step, and early at another."""

_EXPLAINED = 0.5
"""Of the gain: another cause that gains this much tells of these waits."""

_WAIT = "exposed_wait_ns"
_IDLE = [cause.column for cause in IDLE_CAUSES]


def waits_within_steps(
    headline: Headline, steps: Steps, step_needs: StepNeeds, episodes: Episodes, stragglers: Stragglers,
    pipeline: Pipeline, replay: Replay, ranks: Ranks, call_waits: CallWaits, operators: Operators,
    iterations: Iterations, kernels: Kernels, *,
    waits_within_pct: float = WAITING_PCT, clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:  # fmt: skip
    """Ranks wait for each other over 5 % of a step, and hardly idle; replayed without waits over 3 % is gained.

    No one rank is waited for in most of it, unless it waits for the others half as long as ranks do: it comes last in
    one part of a step and first in another. Neither late ranks nor compute evened over steps gain half as much.
    Ranks that have roles (`with_roles`) wait for each other by design.
    """
    if not len(headline) or len(pipeline) or stragglers.table.empty or step_needs.table.empty:
        return []
    basis = Basis.of(headline, steps)
    if basis.steps is None:
        return []
    needs = mean_steps(step_needs, basis, [_WAIT, "compute_ns", *_IDLE])
    waits, step_ns = needs[_WAIT], basis.step_ns
    roots = stragglers.table.set_index("rank")["total_wait_ns"].astype("float64")
    if 100 * waits.mean() < waits_within_pct * step_ns or needs[_IDLE].sum(axis=1).mean() > _EXPLAINED * waits.mean():
        return []
    first = int(roots.idxmax()) if roots.max() > _MOST_OF_ONE * roots.sum() else None
    if first is not None and waits.get(first, 0.0) < _AS_LONG * waits.mean():
        return []
    has_roles = with_roles(step_needs.table, replay, ranks, call_waits, operators)["peers"].nunique() > 1
    gain = None if has_roles else gain_of(replay, Change("waits", 0.0))
    is_clear = gain is not None and gain.gain_pct >= clear_gain_pct
    if gain is None or not is_clear or _is_told_by_others(gain.gain_ns, episodes, step_needs, replay):
        return []
    last = "one comes last" if first is None else f"rank {first} comes last (for most of it)"
    title = Title(
        f"Ranks wait for each other {time_span(waits.min(), waits.max())} of {with_article(time_text(step_ns))} step, "
        f"most of it in {collective_words(stragglers.table['collective'].iloc[0])}: within a step now {last}, "
        f"now another; over a step they compute {time_span(needs['compute_ns'].min(), needs['compute_ns'].max())}. "
        f"If all came together, {gain.whole} would be ",
        Won.recorded(gain),
        ".",
    )
    named = () if first is None else (first,)
    advice = tools_of(ranks, kernels, iterations, operators=operators).even_within
    return [_found(title, gain, plain(needs[["compute_ns", _WAIT]].round().reset_index()), named, advice)]


def _found(title: Title, gain: Gain, evidence: tuple[dict[str, Any], ...], named: tuple[int, ...],
           advice: str) -> Finding:  # fmt: skip
    return Finding(
        severity=severity(gain.gain_pct),
        title=title,
        evidence=evidence,
        recommendation=advice,
        caveat="Work of equal size that takes unequal time, such as kernels beside communication, looks the same.",
        **gained(gain),
        named=named,
        table="stragglers",
    )


def _is_told_by_others(gain_ns: int, episodes: Episodes, step_needs: StepNeeds, replay: Replay) -> bool:
    """Whether late ranks, or compute that differs from step to step, gain half as much.

    Compute that is uneven in each layer and even over a step is told by no other rule.
    """
    late_ns = sum(row["gain_ns"] for row in said_with_gain(episodes))
    even, wide = gain_of(replay, Change("compute", EVEN)), compute_by_step(step_needs)
    beyond_ns = float((wide.max(axis=1) - wide.mean(axis=1)).mean()) if len(wide) else 0.0
    even_ns = even.gain_ns if even and beyond_ns >= _EXPLAINED * even.gain_ns else 0
    return max(late_ns, even_ns) >= _EXPLAINED * gain_ns
