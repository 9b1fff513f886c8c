"""Rules about what the program does on the CPU that no tool records: long stretches between two calls."""

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.host.host_silences import HostSilences
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.host_shares import host_shares, in_a_step
from traceanalyzer.findings.hosts.host_words import HOST_PCT
from traceanalyzer.findings.late.host_story import lateness_or_hosts
from traceanalyzer.findings.worst import OF_ALL_STEPS, Few, few_steps_of, worst_rank
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.vocabulary import HOST

SILENT_PCT = 10.0
"""Of a step, in which the GPU idles while nothing of its host is recorded for long."""

_MOST = 0.5
"""Of all of it: the place that holds so much is named."""

_ADVICE = (
    "Look at what the program does {}: Python of its own leaves no mark in a trace, such as collecting garbage, "
    "tokenising, logging, writing files or waiting. Give it a name (torch.profiler.record_function, an NVTX range) or "
    "record with Python's frames (with_stack=True; nsys --python-sampling=true); then do it more rarely, in another "
    "thread, or after the next GPU work is launched."
)


def silent_hosts(
    headline: Headline,
    steps: Steps,
    idle: Idle,
    host_silences: HostSilences,
    step_needs: StepNeeds,
    episodes: Episodes,
    places: Places,
    replay: Replay,
    *,
    silent_pct: float = SILENT_PCT,
    host_idle_pct: float = HOST_PCT,
) -> list[Finding]:
    """Where GPUs wait for hosts: 10 % of a step in stretches of 1 ms and more of which nothing is recorded.

    Launching takes some 10 µs a call, with Python between; what takes longer is something else that the program does
    there. Not where the job would be no quicker if these hosts took no time at all: another rank is later.
    """
    if not len(host_silences) or (worst := worst_rank(headline, steps, idle, HOST.column, host_idle_pct)) is None:
        return []
    rank, _, _, basis = worst
    table = in_a_step(host_silences)
    shares = host_shares(table.groupby("rank")["idle_a_step_ns"].sum(), rank, basis, silent_pct)
    if shares is None:
        return []
    own = table[table["rank"] == rank].sort_values("idle_a_step_ns", ascending=False)
    idle_ns = float(own["idle_a_step_ns"].sum())
    most_ns = shares.most_gained_ns(idle_ns, replay)
    if most_ns is None:
        return []
    few = few_steps_of(step_needs, basis, rank, HOST.column, idle_ns)
    return [
        Finding(
            severity=severity(shares.pct),
            title=f"{_said(own, rank, basis, few, shares.pct)}{shares.also(places)}.",
            evidence=plain(own[["rank", "range", "since", "until", "stretches", "host_ns", "idle_ns"]]),
            recommendation=_ADVICE.format(_place(own.iloc[0])),
            caveat="A profiler slows the host, but hardly where it records nothing.",
            gain_ns=most_ns,
            steps=few.steps if few else None,
            is_of_hosts=True,
            named=shares.named(rank),
            table="host_silences",
            is_to_do_first=True,
            tells_why=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


def _said(own: pd.DataFrame, rank: int, basis: Basis, few: Few | None, pct: float) -> str:
    """How long the host is silent, where, and for how much of it its GPU idles: of a mean step, or of all."""
    times, a_step = (basis.per, "in all") if _is_rare(own) else (1, "of a mean step" if few else basis.a_step)
    host, idle = (time_text(times * float(own[f"{what}_a_step_ns"].sum())) for what in ("host", "idle"))
    return (
        f"{f'{few.mostly} n' if few else 'N'}othing is recorded of what rank {rank}'s host does for {host} "
        f"{a_step}, {_where(own)}: its GPU idles {idle} of it, {pct:.0f} % "
        f"{OF_ALL_STEPS if few or _is_rare(own) else basis.of_a_step}"
    )


def _is_rare(own: pd.DataFrame) -> bool:
    """Less than once a step."""
    return int(own["stretches"].sum()) < int(own["per"].iloc[0])


def _where(own: pd.DataFrame) -> str:
    """`in one stretch between optimizer and data`; of several places the one that costs most is named."""
    count, per = int(own["stretches"].sum()), int(own["per"].iloc[0])
    place = _place(own.iloc[0])
    if len(own) == 1 and count in (1, per):
        return f"in one stretch {place}"
    told = count // per if count % per == 0 else count
    often = f"{told} stretch{'' if told == 1 else 'es'}"
    often += f" in {per} steps" if count > per and count % per else ""
    if len(own) == 1:
        return f"in {often} {place}"
    is_most = own["idle_a_step_ns"].iloc[0] >= _MOST * own["idle_a_step_ns"].sum()
    return f"in {often}, {'most of it' if is_most else 'more than anywhere else'} {place}"


def _place(row: pd.Series) -> str:
    """`between optimizer and data, in train`."""
    since, until, around = (
        None if pd.isna(row[name]) else short_name(row[name]) for name in ("since", "until", "range")
    )
    between = f"between {since} and {until}" if since and until else f"after {since}" if since else f"before {until}"
    return f"{between}{f', in {around}' if around else ''}"
