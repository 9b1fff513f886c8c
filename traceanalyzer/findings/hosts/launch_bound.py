"""CPU-bound ranks: launches come too late, and why."""

import re
from dataclasses import dataclass, replace

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes, apart_ns, is_of_every_host
from traceanalyzer.analyses.blame.rank_sets import Places
from traceanalyzer.analyses.blame.step_budget import DOING, RANGE, StepNeeds, WhatRan, host_needs_ns
from traceanalyzer.analyses.blame.stragglers import Stragglers
from traceanalyzer.analyses.host.api_calls import FirstCalls, SyncCalls
from traceanalyzer.analyses.host.host_names import holds_whole_pass, is_cpu_collective, is_framework_range, is_launch
from traceanalyzer.analyses.host.idle import GapTable, Idle
from traceanalyzer.analyses.host.launches import Launches
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.operators import OperatorLaunches, Operators
from traceanalyzer.analyses.phases.micro_steps import Iterations
from traceanalyzer.analyses.phases.phases import Phases
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.changes import PEERS, Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of, unprofiled_steps_ns
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.basis import (
    LEAST_GAIN_PCT,
    MOSTLY,
    Basis,
    Title,
    Won,
    basis_of_operators,
    mean_steps,
    of_hosts,
    plain,
    severity,
    steps_of_operators,
    who_decides,
)
from traceanalyzer.findings.finding import Finding, changed, gained
from traceanalyzer.findings.shares import (
    OF_ALL_STEPS,
    Few,
    by_activity,
    few_steps_of,
    host_shares,
    longest,
    most_gained_ns,
    worst_rank,
)
from traceanalyzer.findings.statistics import AS_LONG, Alike, alike, also_on, of_the_others, of_them, with_others
from traceanalyzer.findings.stragglers.stragglers import HOSTS, late_by, lateness_or_hosts, of_ranks, story_of_host
from traceanalyzer.findings.stragglers.wording import UNEVEN_STAGES
from traceanalyzer.findings.vendor_terms import Tools, captured, data_parallel_advice, in_brackets, tools_of
from traceanalyzer.meaning.columns import digits, numbers, time_span, time_text
from traceanalyzer.meaning.names import collective_words, short_name
from traceanalyzer.meaning.vocabulary import HOST, first_upper, numbered
from traceanalyzer.meaning.vocabulary import named as listed
from traceanalyzer.model.tables import rows_where

# What is said of hosts that launch too late: whose GPUs idle for them, for how long, and what launching takes.


HOST_PCT = 10.0
"""Idle time by the host in this share of a step is worth a finding."""

_SHORT = 0.75
"""Hosts that need less than this part of a step do not bind it by launching: they are late at times."""

_MANY_LAUNCHES = 200
"""Of a step: what launches most of fewer is no news."""

_OPERATOR = "^(?!c10d::)[^(]*::"
"""Names of operators, but for those that communicate: what has no name, or records a call, is none."""

_MOST_NAMED = 3

_UNTIL = {False: "before work that has not been launched yet", True: "while no iteration is under way"}
"""When a GPU idles: between an engine's iterations, or not."""

_WAITED_FOR = "requests are waited for, scheduled or answered then"

BINDS = 0.9
"""A host that needs this part of a step to launch it binds it, whose GPU idles or not."""


@dataclass(frozen=True, slots=True)
class IdleForHosts:
    """The GPU that idles longest for its host, beside the others.

    Attributes:
        rank: whose it is.
        cost_ns: how long it does, in a mean step.
        share_pct: of the rank's step.
        basis: what a mean step is of.
        own_set: the rank with those that idle as long.
        means: of every rank the idle time by the host and the window, in a mean step.
        needed_ns: of each rank, what its host needs to launch a step; empty where that is said of a late
            rank: here it would be of other steps.
        doing: in what its host is for most of that time, and how long; `None` for nothing in particular.
        few: the steps that hold most of it; `None` for no few.
        is_one_process: whether one process drives all GPUs.
        is_of_late: whether the rank's lateness is said already: this is what its GPU does meanwhile.
        is_acquitted: whether its host is late by no more than hosts differ.
        is_between: whether it is in no iteration of its engine for most of that time.
    """

    rank: int
    cost_ns: float
    share_pct: float
    basis: Basis
    own_set: Alike
    means: pd.DataFrame
    needed_ns: pd.Series
    doing: str | None
    few: Few | None
    is_one_process: bool
    is_of_late: bool
    is_acquitted: bool
    is_between: bool

    @property
    def are_late_alike(self) -> bool:
        """Whether every GPU idles at least half as long for its host as the one that idles longest."""
        own = self.means[HOST.column]
        return len(own) > 1 and bool(own.min() >= AS_LONG * own.max())

    @property
    def is_needed_known(self) -> bool:
        """Whether what launching a step takes is known of every host."""
        return len(self.needed_ns) == len(self.means) and len(self.needed_ns) > 0 and self.basis.steps is not None

    @property
    def is_floor(self) -> bool:
        """Whether all hosts need most of a step to launch it; or most do, and the slowest is not apart from them."""
        if not self.is_needed_known:
            return False
        needed, window_ns = self.needed_ns, self.means["window_ns"].mean()
        if needed.min() >= _SHORT * window_ns:
            return True
        others = needed.drop(needed.idxmax())
        return bool(len(others) and others.median() >= _SHORT * window_ns and self.are_near)

    @property
    def are_near(self) -> bool:
        """Whether the host that needs most needs no more than hosts differ by."""
        others = self.needed_ns.drop(self.needed_ns.idxmax())
        return self.is_acquitted or bool(self.needed_ns.max() < apart_ns(others))


class Said(Struct, frozen=True):
    """A sentence on the hosts.

    Attributes:
        words: it.
        named: the ranks that it names.
        is_nobodys: whether no one rank is late by it: then nothing else says who waits.
    """

    words: str
    named: tuple[int, ...]
    is_nobodys: bool = False


def said_of(hosts: IdleForHosts) -> Said:
    """What is said of the hosts."""
    if hosts.few:
        return Said(_of_few_steps(hosts, hosts.few), (hosts.rank,))
    gpu, most, idle = _gpu_idles(hosts), _most_in(hosts, "that"), _named_idle(hosts)
    if hosts.is_between:
        return Said(first_upper(f"{_who_waits(hosts)}{gpu}{most}: {_WAITED_FOR}."), idle)
    if hosts.is_floor:
        own = (hosts.rank,) if len(hosts.needed_ns) == 1 else ()
        is_nobodys = len(hosts.needed_ns) > 1 and not hosts.is_one_process
        return Said(_of_floor(hosts), (*own, *idle), is_nobodys)
    needed, window = hosts.needed_ns, hosts.means["window_ns"].mean()
    if hosts.is_needed_known and int(needed.idxmax()) != hosts.rank and needed.max() >= BINDS * window:
        latest = int(needed.idxmax())
        words = (
            f"Rank {latest}'s host needs {time_text(needed.max())} to launch a step of "
            f"{time_text(window)}, rank {hosts.rank}'s {time_text(needed[hosts.rank])}: {gpu}{most}."
        )
        return Said(words, (latest, hosts.rank, *idle))
    is_near = hosts.is_needed_known and hosts.are_near and bool(needed[hosts.rank] >= _SHORT * window)
    is_last = hosts.is_needed_known and int(needed.idxmax()) == hosts.rank and len(needed) > 1
    if is_near or (is_last and not (hosts.is_of_late or hosts.are_late_alike)):
        need, ranks = _what_hosts_need(hosts)
        return Said(f"{need}: {gpu}{most}.", (*ranks, *idle), hosts.is_acquitted)
    words = f"{_who_waits(hosts)}{gpu}{most}."
    return Said(first_upper(words), idle)


def _of_few_steps(hosts: IdleForHosts, few: Few) -> str:
    late = _who_waits(hosts)
    what_for = f": {_WAITED_FOR}" if hosts.is_between else ""
    return (
        f"{few.words} {late[:1].lower()}{late[1:]}rank {hosts.rank}'s GPU idles {few.cost} "
        f"{_UNTIL[hosts.is_between]}{_most_in(hosts, 'it')}{what_for}; "
        f"{few.share_pct:.0f} % {OF_ALL_STEPS}."
    )


def _of_floor(hosts: IdleForHosts) -> str:
    """Launching takes every host most of a step."""
    needed, gpu, most = hosts.needed_ns, _gpu_idles(hosts), _most_in(hosts, "that")
    if len(needed) == 1:
        return f"Rank {hosts.rank}'s host needs {time_text(needed.iloc[0])} to launch a step: {gpu}{most}."
    each = "Both hosts need" if len(needed) == 2 else f"No one rank is late: all {len(needed):,} hosts need"
    each = f"{_one_host(len(needed))} needs" if hosts.is_one_process else each
    words = f"for a step: {gpu}{most}" if hosts.doing else f"to launch a step: {gpu}"
    return f"{each} {time_span(needed.min(), needed.max())} {words}."


def _what_hosts_need(hosts: IdleForHosts) -> tuple[str, tuple[int, ...]]:
    """What launching a step takes the host whose GPU idles longest, and the others'; and whose hosts are named."""
    own, others = hosts.needed_ns[hosts.rank], hosts.needed_ns.drop(hosts.rank)
    whose = of_the_others(others.index)
    each = time_span(others.min(), others.max())
    only = (int(others.index[0]),) if len(others) == 1 else ()
    return f"Rank {hosts.rank}'s host needs {time_text(own)} to launch a step, {whose} {each}", (hosts.rank, *only)


def _are_of_one_host(hosts: IdleForHosts) -> bool:
    return hosts.is_one_process and hosts.are_late_alike


def _named_idle(hosts: IdleForHosts) -> tuple[int, ...]:
    """The ranks that `_gpu_idles` names."""
    return () if _are_of_one_host(hosts) else hosts.own_set.ranks


def _gpu_idles(hosts: IdleForHosts) -> str:
    if _are_of_one_host(hosts):
        idle_for = time_span(hosts.means[HOST.column].min(), hosts.cost_ns)
        idles = f"its GPUs idle {idle_for},{' up to' if ' to ' in idle_for else ''}"
    else:
        own = hosts.own_set
        idles = f"{own.whose_gpus} idle{'s' if own.is_one else ' up to'} {time_text(hosts.cost_ns)},"
    return f"{idles} {hosts.share_pct:.0f} % {hosts.basis.of_a_step}, {_UNTIL[hosts.is_between]}"


def _most_in(hosts: IdleForHosts, of: str) -> str:
    """What its host does meanwhile; of several GPUs ("that") their hosts."""
    is_one = of == "it" or hosts.own_set.is_one or hosts.is_one_process
    return (
        f", most of {of} while {'its host is' if is_one else 'their hosts are'} in {hosts.doing}" if hosts.doing else ""
    )


def _who_waits(hosts: IdleForHosts) -> str:
    """Whose GPUs wait, where that is said of all alike; nothing of a rank whose lateness is said already."""
    count = len(hosts.means)
    if hosts.is_of_late or count == 1 or not hosts.are_late_alike:
        return ""
    if hosts.is_one_process:
        return f"{_one_host(count)} is late: "
    if hosts.is_between:
        return f"{of_them(count, count)} GPUs have no work at times: "
    return f"{'Both' if count == 2 else f'All {count:,}'} GPUs wait for their hosts: "


def _one_host(gpus: int) -> str:
    """One process drives them all."""
    return f"The one host process of {'both' if gpus == 2 else f'all {gpus:,}'} GPUs"


def who_waits(rank: int, stragglers: Stragglers, basis: Basis) -> tuple[str, tuple[int, ...]]:
    """Which rank's GPU waits for this one meanwhile, where it does for a tenth of a step; and that rank."""
    table = stragglers.to_frame()
    own = table[(table["rank"] == rank) & (table["cost_pct"] >= HOST_PCT)] if len(table) else table
    if own.empty:
        return "", ()
    row = own.iloc[0]
    where = f", most of it in {collective_words(row['collective'])}" if pd.notna(row["collective"]) else ""
    words = f" Rank {row['cost_max_rank']}'s waits {time_text(row['cost_max_ns'])} {basis.of_a_step} for it{where}."
    return words, (int(row["cost_max_rank"]),)


def most_launched(operator_launches: OperatorLaunches, rank: int, steps: int, a_step: str) -> str:
    """A sentence on the operators that launch most, where there are many launches `a_step`, with a blank before it."""
    table = operator_launches.table
    own = table[(table["rank"] == rank) & table["operator"].astype("str").str.contains(_OPERATOR)]
    counts = own.set_index("operator")["launches"].astype("float64") / steps
    if counts.sum() < _MANY_LAUNCHES:
        return ""
    most = [f"{short_name(str(name))} ({digits(round(count))})" for name, count in counts.nlargest(_MOST_NAMED).items()]
    return f" Rank {rank}'s operators launch {digits(round(counts.sum()))} times {a_step}, most by {listed(most)}."


def advice(name: str | None, tools: Tools, *, is_sure: bool) -> str:
    """What to do about the host; first whether there is anything to do, where the capture cannot tell."""
    launching = f"{tools.launch_less}; move Python work and logging out of the step"
    if name is not None and is_framework_range(name):
        name = None
    if name is None and not is_sure:
        return (
            "Time some steps without the profiler first. If they are hardly shorter than these, launch less or "
            f"sooner: {launching}."
        )
    if name is None:
        return f"Launch less or sooner: {launching}."
    if is_cpu_collective(name):
        return (
            "Exchange what lies on GPUs with NCCL, for which no host waits. What is the "
            f"CPU's, exchange more rarely or beside other work. Else launch less or sooner: {launching}."
        )
    first = f"Shorten {name.rsplit(' (', 1)[0]}, or let the GPU have work meanwhile."
    return f"{first} Else launch less or sooner: {launching}."


# Engines whose GPUs have nothing to do between iterations: whether for want of requests, the trace does not say.


_ENGINE_ADVICE = (
    "If none were, the load is too small to fill the GPUs and there is nothing to mend: record under load. Else "
    "scheduling requests and handing out results takes that long: "
)

_WAITING = {
    "vLLM": "vllm:num_requests_waiting",
    "SGLang": "sglang:num_queue_reqs",
    "TensorRT-LLM": "numQueuedRequests",
}


def is_between(iterations: Iterations, rank: int, cost_ns: float, basis: Basis) -> bool:
    """Whether a rank's GPU idles for its host mostly while that is in no iteration of an engine."""
    if not len(iterations):
        return False
    own = basis.within(iterations.table)
    between_ns = own.loc[own["rank"] == rank, "between_ns"].sum()
    return bool(between_ns >= MOSTLY * cost_ns * basis.per > 0)


def advice_between(launch_less: str, iterations: Iterations) -> str:
    """What to look at first, and what to do where requests were waiting."""
    metrics = in_brackets(_WAITING, iterations)
    return f"See in the engine's metrics whether requests were waiting then{metrics}. {_ENGINE_ADVICE}{launch_less}."


# Hosts that launch too late: what launching a step takes every one of them, and what they do meanwhile.


_NAMED = 0.5
"""A name is said when it takes this part of the idle time."""

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
    headline: Headline, steps: Steps, idle: Idle, gaps: GapTable, step_needs: StepNeeds, what_ran: WhatRan,
    episodes: Episodes, pipeline: Pipeline, replay: Replay, places: Places, ranks: Ranks, stragglers: Stragglers,
    operators: Operators, operator_launches: OperatorLaunches, kernels: Kernels, iterations: Iterations,
    phases: Phases, launches: Launches, *, host_idle_pct: float = HOST_PCT,
    uneven_stages_times: float = UNEVEN_STAGES,
) -> list[Finding]:  # fmt: skip
    """GPUs idle for their hosts in over 10 % of a step: what the hosts need, on every rank, and what they do.

    Or all hosts need the whole step, and GPUs wait for each other's within collectives: 10 % of it would go with hosts
    that take no time.
    """
    worst = worst_rank(headline, steps, idle, HOST.column, 0.0)
    if worst is None:
        return []
    rank, cost_ns, share, basis = worst
    means = mean_steps(idle, basis, [HOST.column, "window_ns"])
    needed = host_needs_ns(basis.within(step_needs.to_frame()))
    are_awaited = share < host_idle_pct
    if are_awaited and not (basis.steps and needed.min() >= BINDS * means["window_ns"].mean()):
        return []
    replayed = _replayed(replay, basis.steps)
    if are_awaited and not replayed.is_worth(host_idle_pct):
        return []
    own = _gaps_of(gaps, basis, rank)
    few = None if are_awaited else few_steps_of(step_needs, basis, rank, HOST.column, cost_ns)
    part_of = None if replayed.is_recorded_so else story_of_host(rank, episodes, pipeline, uneven_stages_times, needed)
    is_of_late = part_of is not None and part_of == late_by(episodes, rank, HOST.key)
    is_acquitted = any(is_of_every_host(row) for row in episodes.rows() if rank in numbers(row["ranks"]))
    idles_between = is_between(iterations, rank, cost_ns, basis)
    said = IdleForHosts(
        rank, cost_ns, share, basis, alike(means[HOST.column], places), means,
        needed, _doing(what_ran, rank, cost_ns, basis, few), few, ranks.is_one_process, is_of_late, is_acquitted,
        idles_between,
    )  # fmt: skip
    hosts, part_of = _beside_late(said, part_of)
    tools = tools_of(ranks, kernels, iterations, phases, launches=launches)
    if hosts.is_between:
        return [_of_requests(hosts, own, advice_between(tools.launch_less, iterations))]
    found = replace(
        _found(hosts, replayed, stragglers, _launched(hosts, operator_launches, steps), are_awaited=are_awaited),
        evidence=by_activity(own, basis),
        recommendation=_recommendation(hosts.doing, replayed, operators, ranks, tools),
        interval_ns=longest(own),
        part_of=part_of,
    )
    return [_with_gain(found, replayed.gain, cost_ns)]


def _of_requests(hosts: IdleForHosts, own: pd.DataFrame, what_to_do: str) -> Finding:
    """What is said of an engine between its iterations: what it gains is known to whoever knows the requests."""
    said = said_of(hosts)
    return Finding(
        severity="medium",
        title=said.words,
        evidence=by_activity(own, hosts.basis),
        recommendation=what_to_do,
        caveat=_PROFILED,
        interval_ns=longest(own),
        named=said.named,
        is_of_ideal=True,
        is_of_hosts=True,
        steps=hosts.few.steps if hosts.few else None,
        table="iterations",
        about=HOSTS,
    )


def _launched(hosts: IdleForHosts, operator_launches: OperatorLaunches, steps: Steps) -> str:
    """What the host launches most, where it is in nothing in particular for most of that time."""
    if hosts.doing or hosts.few:
        return ""
    counted = int(steps_of_operators(steps, hosts.basis)[hosts.rank])
    return most_launched(operator_launches, hosts.rank, counted, hosts.basis.a_step)


def _found(
    hosts: IdleForHosts, replayed: "_Replayed", stragglers: Stragglers, launched: str, *, are_awaited: bool
) -> Finding:
    """What is said of the hosts, without what to do."""
    share = replayed.share_pct if are_awaited else hosts.share_pct
    title, named = _title(hosts, replayed, stragglers, launched, are_awaited=are_awaited)
    summary, reason = ("", "") if hosts.few else _in_short(hosts, launched, are_awaited=are_awaited)
    return Finding(
        severity=severity(share) if replayed.binds_too or replayed.is_drained else "medium",
        title=title,
        summary=summary,
        reason=reason,
        caveat=f"The gain supposes hosts that take no time. {_PROFILED}",
        named=named,
        is_about_capture=replayed.is_recorded_so,
        is_of_ideal=True,
        is_of_hosts=True,
        steps=hosts.few.steps if hosts.few else None,
        table="gaps",
        about=HOSTS,
    )


def _in_short(hosts: IdleForHosts, launched: str, *, are_awaited: bool) -> tuple[str, str]:
    """Headline, and why: what launching a step takes the CPUs, and what they do."""
    step = hosts.basis.of_a_step.removeprefix("of ")
    if are_awaited:
        summary = f"CPU-bound: launching {step} takes as long as {step} itself."
    elif hosts.are_late_alike:
        summary = f"CPU-bound: GPUs wait for kernel launches up to {hosts.share_pct:.0f}% of {step}."
    else:
        summary = f"CPU-bound: rank {hosts.rank}'s GPU waits for kernel launches {hosts.share_pct:.0f}% of {step}."
    needed = hosts.needed_ns.dropna().astype("float64")
    if hosts.rank not in needed.index:
        return summary, ""
    others = needed.drop(index=hosts.rank)
    beside = f" (other ranks: {time_span(others.min(), others.max())})" if len(others) else ""
    doing = f" Most of it is {hosts.doing}." if hosts.doing else ""
    takes = f"Launching {step} takes rank {hosts.rank}'s CPU {time_text(needed[hosts.rank])}{beside}."
    return summary, f"{takes}{doing}{launched}"


def _gaps_of(gaps: GapTable, basis: Basis, rank: int) -> pd.DataFrame:
    """The rank's idle stretches by its host."""
    table = basis.within(gaps.to_frame())
    return table[(table["rank"] == rank) & (table["cause"] == HOST.key)]


def _beside_late(hosts: IdleForHosts, part_of: str | None) -> tuple[IdleForHosts, str | None]:
    """What all hosts need is no part of what one needs more; else a late rank's need is said of its lateness."""
    if not hosts.is_of_late:
        return hosts, part_of
    if hosts.is_floor and not hosts.few:
        return replace(hosts, is_of_late=False), None
    return replace(hosts, needed_ns=hosts.needed_ns.iloc[:0]), part_of


def _title(
    hosts: IdleForHosts, replayed: "_Replayed", stragglers: Stragglers, launched: str, *, are_awaited: bool
) -> tuple[Title, tuple[int, ...]]:
    """The sentences, and the ranks that they name."""
    said = said_of(hosts)
    waits, waiting = who_waits(hosts.rank, stragglers, hosts.basis) if said.is_nobodys else ("", ())
    ideal: tuple[str | Won, ...] = ()
    if are_awaited and replayed.gain:
        ideal = (f" If hosts took no time, {hosts.basis.whole} would be ", Won.recorded(replayed.gain), ".")
    without = "" if replayed.is_drained or not replayed.without else f" {replayed.without}"
    return Title(said.words, waits, launched, *ideal, without), tuple(dict.fromkeys((*said.named, *waiting)))


def _recommendation(doing: str | None, replayed: "_Replayed", operators: Operators, ranks: Ranks, tools: Tools) -> str:
    if replayed.is_recorded_so:
        return _RECORD_LESS
    is_sure = replayed.binds_too is not None or replayed.is_drained
    return data_parallel_advice(operators, ranks) + advice(doing, tools, is_sure=is_sure)


def _with_gain(found: Finding, gain: Gain | None, cost_ns: float) -> Finding:
    """What hosts that take no time gain; without a replay all that the GPU idles for them."""
    if gain is None:
        return replace(found, gain_ns=round(cost_ns))
    return replace(
        found,
        gain_ns=gain.gain_ns,
        gain_error_ns=gain.error_ns,
        unprofiled_gain_ns=gain.unprofiled_gain_ns,
        changes=changed(gain),
    )


def _doing(what_ran: WhatRan, rank: int, cost_ns: float, basis: Basis, few: Few | None) -> str | None:
    """In what the host is for most of the idle time, and how long in a mean step, or in each of the few."""
    known = longest_name(what_ran.table, rank, cost_ns, basis)
    return known and f"{known[0]} ({time_text(known[1] * basis.per / (len(few.steps) if few else basis.per))})"


class _Replayed(Struct, frozen=True):
    """What hosts that take no time would gain, and what is known of the job without a profiler.

    Attributes:
        gain: of the job with such hosts.
        without: what to say of steps without a profiler.
        binds_too: whether the hosts are too late there as well; `None` where that is not known.
        is_drained: whether waits of hosts for their GPUs make half of the gain or more.
        loading_ns: what data that is ready gains, which is a part of it.
    """

    gain: Gain | None
    without: str
    binds_too: bool | None
    is_drained: bool
    loading_ns: int

    @property
    def share_pct(self) -> float:
        """The gain's part of the step."""
        return self.gain.gain_pct if self.gain else 0.0

    def is_worth(self, least_pct: float) -> bool:
        """Whether the gain beside that of ready data is worth a finding, and more than the replay's error."""
        if self.gain is None:
            return False
        beside_ns = self.gain.gain_ns - self.loading_ns
        return 100 * beside_ns >= least_pct * self.gain.before_ns > 0 and beside_ns >= 2 * self.gain.error_ns

    @property
    def is_recorded_so(self) -> bool:
        """Whether only recording makes them late: queues that hosts drain run dry without a profiler, too."""
        return self.binds_too is False and not self.is_drained


def _replayed(replay: Replay, steps: int | None) -> _Replayed:
    gain, drained = gain_of(replay, Change("host", 0.0)), gain_of(replay, Change("sync"))
    loaded = gain_of(replay, Change("data"))
    without, binds_too = of_hosts(
        unprofiled_steps_ns(replay),
        gain.after_ns if gain else None,
        steps=steps,
        are_waits_open=gain is not None and gain.is_lower_bound,
        who=who_decides(gain, loaded),
    )
    is_drained = gain is not None and drained is not None and drained.gain_ns >= DRAINED * gain.gain_ns
    return _Replayed(gain, without, binds_too, is_drained, loaded.gain_ns if loaded else 0)


def longest_name(work: pd.DataFrame, rank: int, cost_ns: float, basis: Basis) -> tuple[str, float] | None:
    """What the rank's host did in most of the idle time, and for how long in a mean step.

    Innermost, else the user's range around it; not PyTorch's own around whole passes, nor a launch: many are no thing.
    """
    own = basis.within(work)
    own = own[(own["rank"] == rank) & (own["part"] == HOST.column)] if len(own) else own
    for what in (DOING, RANGE):
        sums = rows_where(own, own["what"] == what).groupby("name")["total_ns"].sum() / basis.per if len(own) else own
        if len(sums) and sums.max() >= _NAMED * cost_ns:
            name = str(sums.idxmax())
            if not (name.startswith("(") or is_launch(name) or holds_whole_pass(name)):
                return name, float(sums.max())
    return None


# The rule about calls that take long only when they are first made: a cold capture.


_MOST_ROWS = 8


def first_calls(headline: Headline, steps: Steps, first_calls: FirstCalls, places: Places) -> list[Finding]:
    """GPUs idle for over 1 % of the time in calls that take far longer than the same calls later."""
    if not len(headline) or not len(first_calls):
        return []
    basis = Basis.of(headline, steps)
    table = basis.within(first_calls.table)
    idle_ns = table.groupby("rank")["idle_ns"].sum().astype("float64")
    found = basis.largest_share(idle_ns / basis.per, LEAST_GAIN_PCT)
    if found is None:
        return []
    rank, shares = found
    own = table[table["rank"] == rank].sort_values("idle_ns", ascending=False, kind="stable")
    alike = shares.index[shares >= LEAST_GAIN_PCT]
    return [
        Finding(
            severity=severity(float(shares[rank])),
            title=f"First-call work on rank {rank}: {_what(own)}. The GPU idles {time_text(float(idle_ns[rank]))} for "
            f"it, {shares[rank]:.0f} % of {'the capture' if basis.steps is None else 'all steps'}"
            f"{also_on(alike, shares.index, places)}.",
            evidence=plain(own.head(_MOST_ROWS)),
            recommendation="Record after the first calls: some steps (or requests) of warm-up before the recording, "
            "torch.profiler.schedule(wait=1, warmup=3, active=3). Later calls of these functions return at once.",
            is_about_capture=True,
            named=with_others(rank, alike, shares.index),
            table="first_calls",
        )
    ]


def _what(own: pd.DataFrame) -> str:
    """`kernel modules load in 30 calls of hipLaunchKernel`; of other calls which one blocks the CPU, and when."""
    loading = own[own["loads"].astype(bool)]
    if 2 * loading["idle_ns"].sum() >= own["idle_ns"].sum():
        names = loading.groupby("name")["idle_ns"].sum()
        calls = int(loading["calls"].sum())
        return f"kernel modules load in {calls} call{'s' if calls > 1 else ''}, most of {names.idxmax()}"
    row = own.iloc[0]
    place = "" if pd.isna(row["operator"]) else f" ({short_name(row['operator'])})"
    often = "once" if row["calls"] == 1 else f"{row['calls']} times"
    return f"{row['name']}{place} blocks the CPU {often}, {time_text(int(row['since_ns']))} into the recording"


# Launches that wait for their kernels: CUDA_LAUNCH_BLOCKING=1, left on after debugging.


LEAST_AWAITED_PCT = 90.0
"""Of a rank's kernels of over 20 µs."""

LEAST_KERNELS = 20


def blocking_launches(
    launches: Result,
    replay: Replay,
    *,
    blocking_pct: float = LEAST_AWAITED_PCT,
    blocking_kernels: int = LEAST_KERNELS,
) -> list[Finding]:
    """On some rank over 90 % of the kernels of over 20 µs had ended when the calls that launched them returned."""
    table = launches.to_frame()
    if table.empty:
        return []
    is_blocking = (table["awaitable_kernels"] >= blocking_kernels) & (table["awaited_pct"] >= blocking_pct)
    rows = rows_where(table, is_true(is_blocking))
    if rows.empty:
        return []
    ranks = tuple(int(rank) for rank in rows["rank"])
    is_all = len(ranks) == len(table)
    gain = None if is_all else gain_of(replay, Change("host", PEERS, ranks=frozenset(ranks)))
    one = len(ranks) == 1
    who = "every rank" if is_all and not one else numbered("rank", ranks)
    awaited, kernels = int(rows["awaited_kernels"].sum()), int(rows["awaitable_kernels"].sum())
    as_others = f" With {'its host' if one else 'their hosts'} as fast as the others'"
    besides = ", not counting what overlaps then."
    won = (f"{as_others}, {gain.whole} is ", Won.recorded(gain), besides) if gain and gain.gain_ns > 0 else ()
    return [
        Finding(
            severity="high",
            title=Title(
                f"On {who} launches wait for their kernels: {awaited:,} of {kernels:,} kernels of over 20 µs had "
                "ended when the calls that launched them returned.",
                *won,
            ),
            evidence=plain(rows[["rank", "awaitable_kernels", "awaited_kernels", "awaited_pct"]]),
            recommendation="Unset CUDA_LAUNCH_BLOCKING"
            + ("" if is_all else " there")
            + ": it is for debugging. If it is not set, look for a debugger, a sanitizer, or a synchronisation inside "
            "the launching library.",
            caveat="Nothing overlaps in such a run: record again before other advice is followed." if is_all else None,
            **gained(gain),
            ranks=() if is_all else ranks,
            named=ranks if is_all and one else (),
            is_about_capture=is_all,
            table="launches",
            about=None if is_all else of_ranks({"ranks": ",".join(map(str, ranks))}),
        )
    ]


# The rule about functions of one's own for autograd, each call of which takes a host as long as launching dozens.


FUNCTION_NS = 400_000
"""Of a host for a call: an operator of one kernel takes it some ten times less, a profiler's part of that included."""

FUNCTION_PCT = 20.0
"""Of a step, by the longest such function of each pass together."""

_LEAST_CALLS = 10
"""Of a step: what is called less often may be a block of the model, or the model."""

# Operators of libraries, backward nodes of these (they may compute a whole block again), hooks, what holds a pass.
_NO_FUNCTION = re.compile(r"::|Backward\d+$|(?:Pre|Post)(?:Forward|Backward)|Checkpoint|Compiled|^## ")

_SUMS = ["calls", "host_total_ns", "gpu_ops", "gpu_total_ns"]

_AUTOGRAD_FUNCTIONS_ADVICE = (
    "Let one kernel do what {} does in many operations (torch.compile, or an implementation of its own)."
)

_OF_SYNC_BN = (
    "Keep SyncBatchNorm where a GPU's own batch is too small to tell mean and variance; "
    "elsewhere torch.nn.BatchNorm needs one kernel and no exchange, and GroupNorm or LayerNorm none either."
)


def autograd_functions(
    headline: Headline, steps: Steps, idle: Idle, operators: Operators, episodes: Episodes, places: Places,
    replay: Replay, ranks: Ranks, *, function_ns: int = FUNCTION_NS, function_pct: float = FUNCTION_PCT,
    host_idle_pct: float = HOST_PCT,
) -> list[Finding]:  # fmt: skip
    """Where GPUs wait for hosts: an autograd function takes them 0.4 ms a call, 20 % of a step with its backward.

    They launch nothing themselves, what they call does; ten times a step and more. Of those that lie in each other the
    longest of each pass is told. Not where the job would be no quicker if these hosts took no time at all.
    """
    worst = worst_rank(headline, steps, idle, HOST.column, host_idle_pct)
    if worst is None or not len(operators):
        return []
    rank, basis = worst[0], basis_of_operators(steps, worst[3], ranks)
    table = _functions(operators, steps_of_operators(steps, basis), function_ns)
    shares = host_shares(table.groupby("rank")["a_step_ns"].sum(), rank, basis, function_pct)
    if shares is None:
        return []
    gain = gain_of(replay, Change("host", 0.0, frozenset(shares.ranks)))
    own = table[table["rank"] == rank]
    total_ns = float(own["a_step_ns"].sum())
    most_ns = most_gained_ns(total_ns, gain)
    if most_ns is None:
        return []
    return [
        Finding(
            severity=severity(shares.pct),
            title=f"Rank {rank}'s host takes {time_text(total_ns)} {basis.a_step} for autograd's "
            f"{'functions' if len(own) > 1 else 'function'} {_listed(own, basis)}: {shares.pct:.0f} % "
            f"{basis.of_a_step}{shares.also(places)}.",
            evidence=plain(own[["rank", "operator", "autograd", "calls", "host_total_ns", "gpu_total_ns"]]),
            recommendation=_advice(str(own.iloc[0]["operator"])),
            caveat="A profiler slows the host, most where it launches many small operations.",
            gain_ns=most_ns,
            is_of_hosts=True,
            named=shares.named(rank),
            table="operators",
            is_to_do_first=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


def _functions(operators: Operators, per: pd.Series, least_ns: int) -> pd.DataFrame:
    """Of each rank and pass the function that takes its host longest, of those that take it long a call."""
    table = operators.table[["rank", "operator", "autograd", *_SUMS]].dropna(subset=_SUMS)
    each = table["rank"].map(per).astype("float64")
    table = table.assign(a_step_ns=table["host_total_ns"].astype("float64") / each, a_step=table["calls"] / each)
    is_told = (table["gpu_ops"] == 0) & (table["gpu_total_ns"] > 0) & (table["a_step"] >= _LEAST_CALLS)
    is_told &= table["host_total_ns"] >= least_ns * table["calls"]
    is_told &= ~table["operator"].astype(str).str.contains(_NO_FUNCTION)
    held = table[is_told].sort_values("a_step_ns", ascending=False, kind="stable")
    return held.drop_duplicates(["rank", "autograd"])


def _listed(own: pd.DataFrame, basis: Basis) -> str:
    """`SyncBatchNorm (30 times a step, 1.1 ms each) and SyncBatchNormBackward (…)`."""
    said = [
        f"{short_name(row['operator'])} ({digits(row['a_step'])} times {basis.a_step}, "
        f"{time_text(row['a_step_ns'] / row['a_step'])} each)"
        for row in own.to_dict("records")
    ]
    return " and ".join(said)


def _advice(name: str) -> str:
    return _OF_SYNC_BN if "SyncBatchNorm" in name else _AUTOGRAD_FUNCTIONS_ADVICE.format(short_name(name))


# The rule about one process whose GPUs compute one after the other, as where a model's layers are spread over them.


_AT_ONCE = 1.1
"""GPUs at work on average, of those that take turns: one, and a tenth more for what they hand over."""

_WAITED = 0.5
"""Of the time in which GPUs idle, so much within calls in which the host waits for another one."""


def gpus_in_turn(headline: Headline, steps: Steps, sync_calls: SyncCalls, ranks: Ranks) -> list[Finding]:
    """One process drives several GPUs, of which one works at a time: its host waits in calls while the others idle.

    A call that waits returns once nothing runs: while it lasts and a GPU idles, another one works.
    """
    if not take_turns(headline, steps, sync_calls, ranks):
        return []
    basis, table = Basis.of(headline, steps), headline.table
    idle_ns = _idle_in_calls_ns(basis, sync_calls)
    rank, count = int(idle_ns.idxmax()), len(table)
    cost_ns, share = float(idle_ns.max()) / basis.per, 100.0 * float(idle_ns.max()) / float(basis.window_ns[rank])
    what = "both GPUs" if count == 2 else f"all {count:,} GPUs"
    return [
        Finding(
            severity=severity(share),
            title=f"One process drives {what}, and they take turns: while its host waits for one, rank {rank}'s idles "
            f"{time_text(cost_ns)}, {share:.0f} % {basis.of_a_step}; {_at_work(headline):.2g} of them work at a time.",
            evidence=plain(table[["rank", "window_ns", "compute_ns", "idle_ns"]]),
            recommendation="Layers that are spread over GPUs (device_map, .to() between them) run one after the other. "
            "Let GPUs work at once: a whole model on each with a process of its own (DistributedDataParallel), shards "
            "of every layer (FSDP, tensor parallelism), or several batches under way (a pipeline). What fits one GPU "
            "is fastest on one.",
            gain_ns=round(cost_ns),
            named=(rank,),
            is_of_ideal=True,
            table="sync_calls",
        )
    ]


def take_turns(headline: Headline, steps: Steps, sync_calls: SyncCalls, ranks: Ranks) -> bool:
    """Whether one process's GPUs work one at a time, and its host waits for them meanwhile."""
    if not ranks.is_one_process or len(headline) < 2 or not len(sync_calls) or _at_work(headline) > _AT_ONCE:
        return False
    waited_ns = _idle_in_calls_ns(Basis.of(headline, steps), sync_calls)
    return bool(waited_ns.sum() >= _WAITED * headline.table["idle_ns"].sum() > 0)


def _at_work(headline: Headline) -> float:
    """How many GPUs are at work on average."""
    table = headline.table
    return float((1 - table["idle_ns"] / table["window_ns"]).sum())


def _idle_in_calls_ns(basis: Basis, sync_calls: SyncCalls) -> pd.Series:
    """By rank: idle within calls that wait, in the steps that are counted."""
    table = basis.within(sync_calls.table)
    return table.groupby("rank")["idle_in_call_ns"].sum()


# Rules about inference: iterations that the host cannot launch fast enough.


LAUNCH_BOUND_PCT = 30.0
"""An iteration whose GPU idles for more than this waits for its launches."""

GRAPH_SHARE_PCT = 50.0
"""With at least this share of operations replayed by graphs, launches are not what it waits for."""


def launch_bound_iterations(
    iterations: Iterations, *, launch_bound_pct: float = LAUNCH_BOUND_PCT, iteration_graphs_pct: float = GRAPH_SHARE_PCT
) -> list[Finding]:
    """Prefill or decode leaves the GPU idle for over 30 % of an iteration, and graphs replay less than half of it."""
    table = iterations.to_frame()
    if table.empty:
        return []
    complete = table[is_true(table["is_complete"])]
    held: pd.DataFrame = complete if len(complete) else table
    # What a call blocks is no wait for a launch.
    held = held.assign(idle_ns=held["idle_ns"] - held["blocked_ns"])
    figures: list[str] = ["window_ns", "idle_ns", "between_ns", "operations", "graph_operations"]
    mean = held.groupby(["phase", "rank"])[figures].mean().astype("Float64").reset_index()
    mean["idle_pct"] = 100.0 * mean["idle_ns"] / mean["window_ns"]
    mean["graph_pct"] = 100.0 * mean["graph_operations"] / mean["operations"]
    is_within = mean["between_ns"] < MOSTLY * mean["idle_ns"]
    is_bound = (
        is_within
        & (mean["idle_pct"] >= launch_bound_pct)
        & (mean["graph_pct"] < iteration_graphs_pct).fillna(value=False)
    )
    worst = mean[is_bound].sort_values("idle_pct", ascending=False).drop_duplicates("phase")
    return [_finding(row, captured(iterations)) for _, row in worst.iterrows()]


def _finding(row: pd.Series, graphs: str) -> Finding:
    rank, idle_ns = int(row["rank"]), float(row["idle_ns"])
    operations, replayed = float(row["operations"]), float(row["graph_operations"])
    what = f"{operations:,.0f} operations, {f'{replayed:,.0f}' if replayed else 'none'} of them from a graph"
    phase = str(row["phase"]).capitalize()
    return Finding(
        severity=severity(float(row["idle_pct"])),
        title=f"{phase} is bound by launches: rank {rank}'s GPU idles {time_text(idle_ns)}, "
        f"{row['idle_pct']:.0f} % of an iteration ({what}).",
        evidence=plain(row.to_frame().T),
        recommendation=f"Capture iterations as {graphs}, batch more requests, or schedule asynchronously.",
        caveat="Profiling slows the host, most of all with stacks and shapes; time between iterations counts too.",
        gain_ns=round(idle_ns),
        named=(rank,),
        table="iterations",
        about=HOSTS,
    )
