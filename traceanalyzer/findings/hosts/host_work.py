"""Rules about work that the CPU does itself while the GPU has nothing to do."""

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.host_work import HostWork
from traceanalyzer.analyses.host.thread_roles import COLLECTIVES, MAIN
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.meetings import awaited
from traceanalyzer.analyses.replay.replay import Replay, gains_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.alike import also_on, with_others
from traceanalyzer.findings.basis import Basis, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.host_shares import most_gained_ns
from traceanalyzer.findings.late.host_story import lateness_or_hosts
from traceanalyzer.findings.worst import OF_ALL_STEPS, Few, few_steps_of
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.vocabulary import HOST
from traceanalyzer.model.tables import rows_where

CPU_WORK_PCT = 10.0
"""Of a step, for which one range or operator keeps the GPU idle without starting any work on it."""

LAST_SHARE = 0.5
"""A rank for which another one waits in a collective is said if it is in it for less than this of the other's time."""

_OPTIMIZER = (
    "Keep the optimizer's state on the GPU, or use one that is fast on the CPU (foreach or fused=True); with "
    "offloading, update what is ready while backward still runs."
)

_EXCHANGE = (
    "Exchange less and less often (every hundredth step, numbers instead of pickled objects), over the GPUs' group, or "
    "with async_op=True and a wait where the result is used."
)

_WHO_IS_LAST = "Find what the rank that comes last does before it. "

_OTHER = (
    "Do it in processes beside this one (workers of a DataLoader, multiprocessing; a thread helps only where it lets "
    "go of Python's lock), or launch the next GPU work before it."
)


def cpu_work(
    headline: Headline,
    steps: Steps,
    host_work: HostWork,
    step_needs: StepNeeds,
    episodes: Episodes,
    places: Places,
    replay: Replay,
    *,
    cpu_work_pct: float = CPU_WORK_PCT,
) -> list[Finding]:
    """The main thread, or a collective on the CPU, starts no GPU work while the GPU idles: over 10 % of a step.

    Not where the job would be no quicker if these hosts took no time at all: another rank is later. Loading of data has
    a rule of its own.
    """
    if not len(headline) or not len(host_work):
        return []
    basis = Basis.of(headline, steps)
    table = host_work.to_frame()
    is_data = table["name"].map(host_names.is_data)
    table = rows_where(
        table,
        ~is_data
        & (table["role"].isin((MAIN, COLLECTIVES)))
        & (table["launches"] == 0)
        & table["idle_per_step_ns"].notna(),
    )
    shares = table.assign(share_pct=basis.shares_of_rows(table, "idle_per_step_ns"))
    held = shares[(shares["share_pct"] >= cpu_work_pct).fillna(value=False)].sort_values("share_pct", ascending=False)
    named_alike = [own for _, own in held.groupby("name", sort=False)]
    # All ranks of a collective are in it, those whose GPUs idle less while it runs, too.
    sharing = [table[table["name"] == own["name"].iloc[0]] if _is_collective(own) else own for own in named_alike]
    changes = [_gone(own) for own in sharing]
    gains = gains_of(replay, changes) if changes else None
    of_each: list[Gain | None] = [*gains] if gains else [None] * len(changes)
    found = [
        _finding(own, _last(own, everyone, replay), gain, basis, _few(own, step_needs, basis), episodes, places)
        for own, everyone, gain in zip(named_alike, sharing, of_each, strict=True)
    ]
    return [each for each in found if each is not None]


def _few(own: pd.DataFrame, step_needs: StepNeeds, basis: Basis) -> Few | None:
    """Few steps that hold most of what the GPU idles for its host, where most of that is this."""
    first = own.iloc[0]
    return few_steps_of(step_needs, basis, int(first["rank"]), HOST.column, float(first["idle_per_step_ns"]))


def _gone(own: pd.DataFrame) -> tuple[Change, ...]:
    """The job without these hosts' time; without what a collective takes once its last host has come."""
    hosts = Change("host", 0.0, frozenset(map(int, own["rank"])))
    return (hosts, Change("collective", 0.0, name=str(own["name"].iloc[0]))) if _is_collective(own) else (hosts,)


def _is_collective(own: pd.DataFrame) -> bool:
    return bool((own["role"] == COLLECTIVES).all())


def _last(own: pd.DataFrame, everyone: pd.DataFrame, replay: Replay) -> tuple[int, float] | None:
    """For whom the rank that a collective costs most waits in it, and that one's time in it, if it is far less."""
    if replay.engine is None or not _is_collective(own):
        return None
    first = own.iloc[0]
    rank = awaited(replay.engine.job.meetings, str(first["name"])).get(int(first["rank"]))
    last_ns = everyone.loc[everyone["rank"] == rank, "host_per_step_ns"].sum()
    if rank is None or last_ns > LAST_SHARE * first["host_per_step_ns"]:
        return None
    return rank, float(last_ns)


def _finding(
    own: pd.DataFrame,
    last: tuple[int, float] | None,
    gain: Gain | None,
    basis: Basis,
    few: Few | None,
    episodes: Episodes,
    places: Places,
) -> Finding | None:
    """One name, on the rank where it costs most; on how many others it does too is said.

    Of a collective to which one rank comes last, that one's lateness is the cause.
    """
    row = own.iloc[0]
    name, rank, idle_ns = str(row["name"]), int(row["rank"]), float(row["idle_per_step_ns"])
    most_ns = most_gained_ns(idle_ns, gain)
    if most_ns is None:
        return None
    alike = own["rank"].unique()
    comes_last = f"; rank {last[0]} comes last ({time_text(last[1])} in it)" if last else ""
    return Finding(
        severity=severity(float(row["share_pct"])),
        title=f"{f'{few.mostly} r' if few else 'R'}ank {rank}'s CPU is in {short_name(name)} for "
        f"{time_text(float(row['host_per_step_ns']))} {'of a mean' if few else 'a'} step and starts no GPU work there: "
        f"the GPU idles {time_text(idle_ns)} of it, {row['share_pct']:.0f} % "
        f"{OF_ALL_STEPS if few else basis.of_a_step}{also_on(alike, basis.window_ns.index, places)}{comes_last}.",
        evidence=plain(own[["rank", "role", "what", "name", "calls", "host_per_step_ns", "idle_per_step_ns"]]),
        recommendation=(_WHO_IS_LAST if last else "") + _advice(name, str(row["role"])),
        caveat="A profiler slows the host; what GPU work could run meanwhile, the trace does not tell.",
        gain_ns=most_ns,
        steps=few.steps if few else None,
        named=tuple(dict.fromkeys((*with_others(rank, alike, basis.window_ns.index), *(last or ())[:1]))),
        is_of_hosts=True,
        table="host_work",
        is_to_do_first=True,
        part_of=lateness_or_hosts(last[0] if last else rank, episodes),
    )


def _advice(name: str, role: str) -> str:
    if role == COLLECTIVES:
        return _EXCHANGE
    return _OPTIMIZER if host_names.phase(name) == "optimizer" else _OTHER
