"""Hosts that launch too late: what launching a step takes every one of them, and what they do meanwhile."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses.blame.episode_rows import apart_ns
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.stragglers import Stragglers
from traceanalyzer.analyses.blame.what_ran import DOING, RANGE, WhatRan
from traceanalyzer.analyses.host.gaps import GapTable
from traceanalyzer.analyses.host.host_names import holds_whole_pass, is_framework_range
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of, unprofiled_steps_ns
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.alike import Alike, alike
from traceanalyzer.findings.basis import Basis, mean_steps, milliseconds, severity, span
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.host_story import HOSTS, story_of_host
from traceanalyzer.findings.late.lateness import late_by
from traceanalyzer.findings.tools import data_parallel_advice, tools_of
from traceanalyzer.findings.unprofiled import of_hosts
from traceanalyzer.findings.worst import OF_ALL_STEPS, Few, by_activity, few_steps, longest, worst_rank
from traceanalyzer.meaning.vocabulary import HOST

HOST_PCT = 10.0
"""Idle time by the host in this share of a step is worth a finding."""

_NAMED = 0.5
"""A name is said when it takes this part of the idle time."""

_SHORT = 0.75
"""Hosts that need less than this part of a step do not bind it by launching: they are late at times."""

_BINDS = 0.9
"""A host that needs this part of a step to launch it binds it, whose GPU idles or not."""

_ALIKE = 0.5
"""Of the longest idle time: hosts that cost this part of it are late alike."""

DRAINED = 0.5
"""Of what hosts that take no time would gain: the queues that run dry are then what is wrong with the hosts."""

_RECORD_LESS = (
    "Time some steps without the profiler. To see them as they are, record less of the host: without with_stack, "
    "record_shapes and profile_memory, or with Nsight Systems."
)
"""What to do where only recording makes the hosts late."""

_PROFILED = (
    "A profiler slows the host, most of all with stacks and shapes: compare with the step time without a profiler "
    "before you spend effort here."
)


def host_bound(
    headline: Headline,
    steps: Steps,
    idle: Idle,
    gaps: GapTable,
    step_needs: StepNeeds,
    what_ran: WhatRan,
    episodes: Episodes,
    pipeline: Pipeline,
    replay: Replay,
    places: Places,
    ranks: Ranks,
    stragglers: Stragglers,
    operators: Operators,
) -> list[Finding]:
    """GPUs idle for their hosts in over 10 % of a step: what the hosts need, on every rank, and what they do."""
    worst = worst_rank(headline, steps, idle, HOST.column, HOST_PCT)
    if worst is None:
        return []
    rank, cost_ns, share, basis = worst
    own = basis.within(gaps.to_frame())
    own = own[(own["rank"] == rank) & (own["cause"] == HOST.key)]
    few = few_steps(step_needs, basis, rank, HOST.column)
    known = longest_name(what_ran.table, rank, cost_ns, basis)
    name = known and f"{known[0]} ({milliseconds(known[1] * basis.per / (len(few.steps) if few else basis.per))})"
    replayed = _replayed(replay, is_of_steps=basis.steps is not None)
    gain = replayed.gain
    means = mean_steps(idle, basis, [HOST.column, "window_ns"])
    own_set = alike(means[HOST.column], places)
    needed = _needed_ns(step_needs, basis)
    part_of = None if replayed.is_recorded_so else story_of_host(rank, episodes, pipeline, needed)
    # What the hosts need is said of the late rank; here it would be of other steps.
    is_of_late = part_of is not None and part_of == late_by(episodes, rank, HOST.key)
    needs = needed.iloc[:0] if is_of_late else needed
    said, is_of_all = _said(
        rank, own_set, cost_ns, share, basis, means, needs, name, few,
        is_one=ranks.is_one_process, is_late=is_of_late,
    )  # fmt: skip
    said += _waiting(rank, stragglers, basis) if is_of_all else ""
    return [
        Finding(
            rule="host_bound",
            severity=severity(share) if replayed.binds_too or replayed.is_drained else "medium",
            title=f"{said} {'' if replayed.is_drained else replayed.without}".strip(),
            evidence=by_activity(own, basis),
            recommendation=_RECORD_LESS
            if replayed.is_recorded_so
            else data_parallel_advice(operators, ranks)
            + _advice(name, ranks, is_sure=replayed.binds_too is not None or replayed.is_drained),
            caveat=f"The gain supposes hosts that take no time. {_PROFILED}",
            gain_ns=round(cost_ns) if gain is None else gain.gain_ns,
            gain_error_ns=None if gain is None else gain.error_ns,
            unprofiled_gain_ns=None if gain is None else gain.unprofiled_gain_ns,
            is_about_capture=replayed.is_recorded_so,
            is_of_ideal=True,
            is_of_hosts=True,
            steps=few.steps if few else None,
            interval_ns=longest(own),
            table="gaps",
            about=HOSTS,
            part_of=part_of,
        )
    ]


@dataclass(frozen=True, slots=True)
class _Replayed:
    """What hosts that take no time would gain, and what is known of the job without a profiler.

    Attributes:
        gain: of the job with such hosts.
        without: what to say of steps without a profiler.
        binds_too: whether the hosts are too late there as well; `None` where that is not known.
        is_drained: whether waits of hosts for their GPUs make half of the gain or more.
    """

    gain: Gain | None
    without: str
    binds_too: bool | None
    is_drained: bool

    @property
    def is_recorded_so(self) -> bool:
        """Whether only recording makes them late: queues that hosts drain run dry without a profiler, too."""
        return self.binds_too is False and not self.is_drained


def _replayed(replay: Replay, *, is_of_steps: bool) -> _Replayed:
    gain, drained = gain_of(replay, Change("host", 0.0)), gain_of(replay, Change("sync"))
    without, binds_too = of_hosts(unprofiled_steps_ns(replay), gain.after_ns if gain else None, is_of_steps=is_of_steps)
    is_drained = gain is not None and drained is not None and drained.gain_ns >= DRAINED * gain.gain_ns
    return _Replayed(gain, without, binds_too, is_drained)


def _said(
    rank: int,
    own_set: Alike,
    cost_ns: float,
    share: float,
    basis: Basis,
    idle: pd.DataFrame,
    needed: pd.Series,
    name: str | None,
    few: Few | None,
    *,
    is_one: bool,
    is_late: bool,
) -> tuple[str, bool]:
    """What is said of the hosts, and whether it is of all alike: then nothing else says who waits.

    Of a rank whose lateness is said already (`is_late`) it is what its GPU does meanwhile.
    """
    late = "" if is_late else f"{_late(own_set, idle, is_one=is_one)}: "
    if few:
        most = f", most of it while its host is in {name}" if name else ""
        return (
            f"{few.words} {late[:1].lower()}{late[1:]}rank {rank}'s GPU idles {few.cost} "
            f"before work that has not been launched yet{most}; {few.share_pct(basis, rank):.0f} % {OF_ALL_STEPS}."
        ), False
    if is_one and _are_late_alike(idle):
        idle_for = span(idle[HOST.column].min(), cost_ns)
        idles = f"its GPUs idle {idle_for},{' up to' if ' to ' in idle_for else ''}"
    else:
        idles = f"{own_set.whose_gpus} idle{'s' if own_set.is_one else ' up to'} {milliseconds(cost_ns)},"
    gpu = f"{idles} {share:.0f} % {basis.of_a_step}, before work that has not been launched yet"
    most = f", most of that while its host is in {name}" if name else ""
    window = idle["window_ns"].mean()
    is_known = len(needed) == len(idle) and len(needed) > 0 and basis.steps is not None
    is_floor = is_known and _is_floor(needed, window)
    if is_known and not is_floor and int(needed.idxmax()) != rank and needed.max() >= _BINDS * window:
        return (
            f"Rank {int(needed.idxmax())}'s host needs {milliseconds(needed.max())} to launch a step of "
            f"{milliseconds(window)}, rank {rank}'s {milliseconds(needed[rank])}: {gpu}{most}."
        ), False
    if not is_floor:
        words = f"{late}{gpu}{most}."
        return f"{words[0].upper()}{words[1:]}", False
    if len(needed) == 1:
        return f"Rank {rank}'s host needs {milliseconds(needed.iloc[0])} to launch a step: {gpu}{most}.", False
    each = "Both hosts need" if len(needed) == 2 else f"No one rank is late: all {len(needed)} hosts need"
    each = f"{_one_host(len(needed))} needs" if is_one else each
    between = span(needed.min(), needed.max())
    words = f"for a step: {gpu}{most}" if name else f"to launch a step: {gpu}"
    return f"{each} {between} {words}.", not is_one


def _is_floor(needed: pd.Series, window_ns: float) -> bool:
    """Whether all hosts need most of a step to launch it; or most do, and the slowest is not apart from the others."""
    if needed.min() >= _SHORT * window_ns:
        return True
    others = needed.drop(needed.idxmax())
    return bool(len(others) and others.median() >= _SHORT * window_ns and needed.max() < apart_ns(others))


def _waiting(rank: int, stragglers: Stragglers, basis: Basis) -> str:
    """Which rank's GPU waits for this one meanwhile, where it does for a tenth of a step."""
    table = stragglers.to_frame()
    own = table[(table["rank"] == rank) & (table["cost_pct"] >= HOST_PCT)] if len(table) else table
    if own.empty:
        return ""
    row = own.iloc[0]
    where = f", most of it in {str(row['collective']).replace('_', '-')}" if pd.notna(row["collective"]) else ""
    return f" Rank {row['cost_max_rank']}'s waits {milliseconds(row['cost_max_ns'])} {basis.of_a_step} for it{where}."


def _one_host(gpus: int) -> str:
    """One process drives them all."""
    return f"The one host process of {'both' if gpus == 2 else f'all {gpus}'} GPUs"


def _needed_ns(step_needs: StepNeeds, basis: Basis) -> pd.Series:
    """What each host needs to launch a step: the median of the basis' steps."""
    needs = basis.within(step_needs.to_frame())
    needed = needs[needs["needed_host_ns"].notna()].astype({"needed_host_ns": "float64"})
    return needed.groupby("rank")["needed_host_ns"].median()


def _late(own_set: Alike, idle: pd.DataFrame, *, is_one: bool) -> str:
    """Where every GPU idles at least half as long for its host as the one that idles longest, no one host is late."""
    if _are_late_alike(idle):
        if is_one:
            return f"{_one_host(len(idle))} is late"
        return f"{'Both' if len(idle) == 2 else f'All {len(idle)}'} GPUs wait for their hosts"
    if own_set.is_one:
        return f"Rank {own_set.ranks[0]}'s host is late"
    return f"The hosts of {own_set.who} are late"


def _are_late_alike(idle: pd.DataFrame) -> bool:
    return len(idle) > 1 and bool(idle[HOST.column].min() >= _ALIKE * idle[HOST.column].max())


def longest_name(work: pd.DataFrame, rank: int, cost_ns: float, basis: Basis) -> tuple[str, float] | None:
    """What the rank's host did in most of the idle time, and for how long in a mean step.

    Innermost, else the user's range around it; not PyTorch's own around whole passes.
    """
    own = basis.within(work)
    own = own[(own["rank"] == rank) & (own["part"] == HOST.column)] if len(own) else own
    for what in (DOING, RANGE):
        sums = own[own["what"] == what].groupby("name")["total_ns"].sum() / basis.per if len(own) else own
        if len(sums) and sums.max() >= _NAMED * cost_ns:
            name = str(sums.idxmax())
            if not name.startswith("(") and not holds_whole_pass(name):
                return name, float(sums.max())
    return None


def _advice(name: str | None, ranks: Ranks, *, is_sure: bool) -> str:
    """What to do about the host; first whether there is anything to do, where the capture cannot tell."""
    launching = f"{tools_of(ranks).launch_less}; move Python work and logging out of the step"
    if name is not None and is_framework_range(name):
        name = None
    if name is None and not is_sure:
        return (
            "Time some steps without the profiler first. If they are hardly shorter than these, launch less or "
            f"sooner: {launching}."
        )
    if name is None:
        return f"Launch less or sooner: {launching}."
    first = f"Shorten {name.rsplit(' (', 1)[0]}, or let the GPU have work meanwhile."
    return f"{first} Else launch less or sooner: {launching}."
