"""Hosts that launch too late: what launching a step takes every one of them, and what they do meanwhile."""

from dataclasses import replace

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.episode_rows import is_of_every_host
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.blame.step_needs import StepNeeds, host_needs_ns
from traceanalyzer.analyses.blame.stragglers import Stragglers
from traceanalyzer.analyses.blame.what_ran import DOING, RANGE, WhatRan
from traceanalyzer.analyses.host.gaps import GapTable
from traceanalyzer.analyses.host.host_names import holds_whole_pass, is_launch
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.host.launches import Launches
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.operator_launches import OperatorLaunches
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.analyses.phases.phases import Phases
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of, unprofiled_steps_ns
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.alike import alike
from traceanalyzer.findings.basis import Basis, mean_steps, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.hosts.between_iterations import advice_between, is_between
from traceanalyzer.findings.hosts.host_words import (
    BINDS,
    HOST_PCT,
    IdleForHosts,
    advice,
    most_launched,
    said_of,
    who_waits,
)
from traceanalyzer.findings.late.heavy_stages import UNEVEN_STAGES
from traceanalyzer.findings.late.host_story import HOSTS, story_of_host
from traceanalyzer.findings.late.lateness import late_by
from traceanalyzer.findings.tools import Tools, data_parallel_advice, tools_of
from traceanalyzer.findings.unprofiled import of_hosts, who_decides
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.findings.worst import Few, by_activity, few_steps_of, longest, worst_rank
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.vocabulary import HOST
from traceanalyzer.model.tables import rows_where

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
    return Finding(
        severity=severity(share) if replayed.binds_too or replayed.is_drained else "medium",
        title=title,
        caveat=f"The gain supposes hosts that take no time. {_PROFILED}",
        named=named,
        is_about_capture=replayed.is_recorded_so,
        is_of_ideal=True,
        is_of_hosts=True,
        steps=hosts.few.steps if hosts.few else None,
        table="gaps",
        about=HOSTS,
    )


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
    unprofiled = gain.unprofiled_gain_ns
    return replace(found, gain_ns=gain.gain_ns, gain_error_ns=gain.error_ns, unprofiled_gain_ns=unprofiled)


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
