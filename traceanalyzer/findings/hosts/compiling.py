"""Rules about hosts that compile in the steps that were recorded, while their GPUs wait."""

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.host.compilations import CAPTURE, DYNAMO, XLA, Compilations
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.host_shares import host_shares, in_a_step
from traceanalyzer.findings.late.host_story import lateness_or_hosts
from traceanalyzer.findings.late.late_advice import WHY_COMPILED
from traceanalyzer.findings.worst import OF_ALL_STEPS, few_steps_of
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.vocabulary import HOST

COMPILING_PCT = 5.0
"""Of a step, in which the GPU idles while its host compiles."""

_WHY_CAPTURED = (
    "Graphs are captured before they are replayed, and nothing of them runs meanwhile: record later, once they are. "
    "What captures anew in a running job meets new sizes: pad to few."
)


def _does(names: list[str]) -> str:
    compilers = " and ".join(name for name in names if name != CAPTURE)
    return " and ".join([*[f"compiles ({compilers})"] * bool(compilers), *["captures graphs"] * (CAPTURE in names)])


def _why(names: list[str]) -> str:
    if names == [CAPTURE]:
        return _WHY_CAPTURED
    return WHY_COMPILED[DYNAMO if DYNAMO in names else XLA]


def compiling(
    headline: Headline,
    steps: Steps,
    compilations: Compilations,
    step_needs: StepNeeds,
    episodes: Episodes,
    places: Places,
    replay: Replay,
    *,
    compiling_pct: float = COMPILING_PCT,
) -> list[Finding]:
    """A GPU idles for 5 % of a step while its host compiles (torch.compile, or XLA), or captures CUDA graphs.

    Not where the job would be no quicker if that host took no time at all: another rank is later.
    """
    if not len(compilations) or not len(headline):
        return []
    basis = Basis.of(headline, steps)
    table = in_a_step(compilations)
    idle_ns = table.groupby("rank")["idle_a_step_ns"].sum()
    rank = int(idle_ns.idxmax())
    shares = host_shares(idle_ns, rank, basis, compiling_pct)
    most_ns = shares.most_gained_ns(float(idle_ns[rank]), replay) if shares else None
    if shares is None or most_ns is None:
        return []
    few = few_steps_of(step_needs, basis, rank, HOST.column, float(idle_ns[rank]))
    own = table[table["rank"] == rank]
    names = [str(name) for name in own["compiler"]]
    return [
        Finding(
            severity=severity(shares.pct),
            title=f"{f'{few.mostly} r' if few else 'R'}ank {rank}'s host {_does(names)} "
            f"for {time_text(float(own['host_a_step_ns'].sum()))} {'of a mean step' if few else basis.a_step}: its GPU "
            f"idles {time_text(float(idle_ns[rank]))} of it, {shares.pct:.0f} % "
            f"{OF_ALL_STEPS if few else basis.of_a_step}{shares.also(places)}.",
            evidence=plain(own[["rank", "compiler", "stretches", "host_ns", "idle_ns"]]),
            recommendation=_why(names),
            caveat="Compiled code that is kept on disk, or autotuning left out, makes it shorter, not rarer.",
            gain_ns=most_ns,
            gain_is_bound=True,
            steps=few.steps if few else None,
            is_of_hosts=True,
            named=shares.named(rank),
            table="compilations",
            is_to_do_first=True,
            tells_why=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]
