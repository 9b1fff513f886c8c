"""What is said of hosts that launch too late: whose GPUs idle for them, for how long, and what launching takes."""

from dataclasses import dataclass

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.episode_rows import apart_ns
from traceanalyzer.analyses.blame.stragglers import Stragglers
from traceanalyzer.analyses.host.host_names import is_cpu_collective, is_framework_range
from traceanalyzer.analyses.operators.operator_launches import OperatorLaunches
from traceanalyzer.findings.alike import AS_LONG, Alike, of_the_others, of_them
from traceanalyzer.findings.basis import Basis
from traceanalyzer.findings.tools import Tools
from traceanalyzer.findings.worst import OF_ALL_STEPS, Few
from traceanalyzer.meaning.listed import named as listed
from traceanalyzer.meaning.names import collective_words, short_name
from traceanalyzer.meaning.quantities import digits, time_span, time_text
from traceanalyzer.meaning.sentences import first_upper
from traceanalyzer.meaning.vocabulary import HOST

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
