"""Waits within steps: in one exchange one rank comes last, in the next another; over a step none needs more."""

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.stragglers import Stragglers
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.change import EVEN, Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, mean_steps, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.lateness import said_with_gain
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.quantities import time_span, time_text
from traceanalyzer.meaning.vocabulary import IDLE_CAUSES

WAITING_PCT = 5.0
"""Of a step: the mean rank waits longer."""

_MOST_OF_ONE = 0.6
"""Of all waits: if more are for one rank, it is late, not each in turn."""

_EXPLAINED = 0.5
"""Of the gain: another cause that gains this much tells of these waits."""

_WAIT = "exposed_wait_ns"
_IDLE = [cause.column for cause in IDLE_CAUSES]


def waits_within_steps(
    headline: Headline, steps: Steps, step_needs: StepNeeds, episodes: Episodes, stragglers: Stragglers,
    pipeline: Pipeline, replay: Replay, *, waits_within_pct: float = WAITING_PCT,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:  # fmt: skip
    """Ranks wait for each other over 5 % of a step, and hardly idle; replayed without waits over 3 % is gained.

    No one rank is waited for in most of it, and neither late ranks nor compute evened over steps gain half as much.
    """
    if not len(headline) or len(pipeline) or stragglers.table.empty or step_needs.table.empty:
        return []
    basis = Basis.of(headline, steps)
    if basis.steps is None:
        return []
    needs = mean_steps(step_needs, basis, [_WAIT, "compute_ns", *_IDLE])
    waits, step_ns = needs[_WAIT], float(basis.window_ns.mean()) / basis.per
    roots = stragglers.table.set_index("rank")["total_wait_ns"].astype("float64")
    if (
        100 * waits.mean() < waits_within_pct * step_ns
        or needs[_IDLE].sum(axis=1).mean() > _EXPLAINED * waits.mean()
        or roots.max() > _MOST_OF_ONE * roots.sum()
    ):
        return []
    gain = gain_of(replay, Change("waits", 0.0))
    if gain is None or 100 * gain.gain_ns < clear_gain_pct * gain.before_ns or _is_told(gain, episodes, replay):
        return []
    where = collective_words(stragglers.table["collective"].iloc[0])
    return [
        Finding(
            severity=severity(100 * gain.gain_ns / gain.before_ns),
            title=Title(
                f"Ranks wait for each other {time_span(waits.min(), waits.max())} of a {time_text(step_ns)} step, "
                f"most of it in {where}: within a step now one comes last, now another; over a step they compute "
                f"{time_span(needs['compute_ns'].min(), needs['compute_ns'].max())}. If all came together, "
                f"{gain.whole} would be ",
                Won.recorded(gain),
                ".",
            ),
            evidence=plain(needs[["compute_ns", _WAIT]].round().reset_index()),
            recommendation="Give all ranks as much between one exchange and the next: microbatches of like lengths on "
            "all ranks, each layer's experts evenly loaded; or exchange less often: no_sync until the last microbatch.",
            caveat="Work of equal size that takes unequal time, such as kernels beside communication, looks the same.",
            gain_ns=gain.gain_ns,
            gain_error_ns=gain.error_ns,
            gain_is_bound=gain.is_bound,
            table="stragglers",
        )
    ]


def _is_told(gain: Gain, episodes: Episodes, replay: Replay) -> bool:
    """Whether late ranks, or compute that differs from step to step, gain half as much."""
    late_ns = sum(row["gain_ns"] for row in said_with_gain(episodes))
    even = gain_of(replay, Change("compute", EVEN))
    return max(late_ns, even.gain_ns if even else 0) >= _EXPLAINED * gain.gain_ns
