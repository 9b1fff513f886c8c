"""Slow CPUs, and ranks that come last to collectives of the CPU."""

from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes, is_of_every_host
from traceanalyzer.analyses.blame.step_budget import RANGE
from traceanalyzer.analyses.host.activity import COLLECTIVES, MAIN
from traceanalyzer.analyses.host.cpu_collectives import HostMeetings
from traceanalyzer.analyses.host.cpu_time import COLLECTIVE, HostWork, times_to_compare
from traceanalyzer.analyses.host.host_names import is_data
from traceanalyzer.analyses.host.host_silences import HostSilences
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.host.launches import Launches
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import EXPLAINED_PCT, Basis, Title, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.hosts.launch_bound import HOST_PCT
from traceanalyzer.findings.shares import worst_rank
from traceanalyzer.findings.statistics import of_the_others
from traceanalyzer.findings.stragglers.stragglers import of_lead, said, story_of_host
from traceanalyzer.findings.stragglers.wording import (
    MORE,
    SLOWER,
    UNEVEN_STAGES,
    MoreCalls,
    SlowHost,
    more_calls,
    of_as_many_steps,
    slow_host,
    whole_of,
    won_of,
)
from traceanalyzer.meaning.columns import digits, numbers, time_text
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import HOST, first_upper, listed, numbered

# Why a late host is late: the calls that all make take it longer, it makes more of them, or launches no graphs.


EAGER_PCT = 50.0
"""Of the part that others launch as graphs."""


def slow_hosts(
    headline: Headline,
    steps: Steps,
    idle: Idle,
    episodes: Episodes,
    operators: Operators,
    pipeline: Pipeline,
    *,
    slow_host_times: float = SLOWER,
    host_idle_pct: float = HOST_PCT,
    uneven_stages_times: float = UNEVEN_STAGES,
) -> list[Finding]:
    """A rank makes the calls that all make, and takes at least 1.2 times as long for them.

    Of ranks whose host is late by nothing that has a name, or in a range that all have, and of the one whose GPU idles
    most for its host. Ranks of which fewer steps were recorded, or more, are no measure.
    """
    operators = of_as_many_steps(operators, steps.table)
    rows = [row for row in said(episodes) if row["cause"] == HOST.key]
    is_named = [row["name"] is not None and row["what"] != RANGE for row in rows]
    named = {rank for row, has_name in zip(rows, is_named, strict=True) if has_name for rank in numbers(row["ranks"])}
    late = {numbers(row["ranks"])[0]: of_lead(episodes, row)
            for row, has_name in zip(rows, is_named, strict=True)
            if not has_name and len(numbers(row["ranks"])) == 1}  # fmt: skip
    most = worst_rank(headline, steps, idle, HOST.column, host_idle_pct)
    if most and most[0] not in {*late, *named}:
        late[most[0]] = story_of_host(most[0], episodes, pipeline, uneven_stages_times)
    slow = {rank: (slow_host(operators, rank, slow_host_times), part_of) for rank, part_of in late.items()}
    found = []
    for rank, (own, part_of) in slow.items():
        if own is not None:
            others = [int(other) for other in operators.table["rank"].unique() if other != rank]
            whose = of_the_others(others)
            acquitted = _acquitted(rank, others, episodes, Basis.of(headline, steps).steps)
            told = _slow(rank, own, whose, acquitted)
            found.append(replace(told, named=(rank, *others) if len(others) == 1 else (rank,), part_of=part_of))
    return found


def _slow(rank: int, slow: SlowHost, whose: str, acquitted: Title) -> Finding:
    return Finding(
        severity="medium",
        title=Title(
            f"Rank {rank}'s host makes the same {slow.calls:,} operator calls as {whose} in the capture and takes "
            f"{slow.times:.2g} times as long for them{_most(slow)}.",
            acquitted,
        ),
        evidence=plain(slow.rows),
        table="operators",
    )


def _acquitted(rank: int, others: list[int], episodes: Episodes, steps: int | None) -> Title:
    """Of a host that is late by no more than hosts differ: what it would gain all the same."""
    two = "Two hosts alone do not tell whether one of them is slow: they" if len(others) == 1 else "Hosts"
    for row in episodes.rows():
        gain_ns = row["gain_ns"]
        if gain_ns and numbers(row["ranks"]) == (rank,) and is_of_every_host(row):
            return Title(
                f" {two} can differ as much where nothing is wrong. With this one like {of_the_others(others)} "
                f"{whole_of(row, steps)} is ",
                won_of(row),
                "; record again to see whether it is late again.",
            )
    return Title()


def _most(slow: SlowHost) -> str:
    """`: of 131 ms more 73.3 ms are in aten::_cudnn_attention_backward`; nothing where it is spread over many."""
    parts = [f"{time_text(ns)} in {name}" for name, ns in slow.most.items()]
    return f": of {time_text(slow.more_ns)} more, {' and '.join(parts)}" if parts else ""


def busy_hosts(
    headline: Headline,
    steps: Steps,
    idle: Idle,
    episodes: Episodes,
    operators: Operators,
    pipeline: Pipeline,
    *,
    busy_host_times: float = MORE,
    host_idle_pct: float = HOST_PCT,
    uneven_stages_times: float = UNEVEN_STAGES,
) -> list[Finding]:
    """A rank whose host is late, or whose GPU idles most for it, makes 1.15 times as many operator calls as others.

    Named with those that make as many. Ranks of which fewer steps were recorded, or more, are no measure.
    """
    operators = of_as_many_steps(operators, steps.table)
    late = [numbers(row["ranks"]) for row in said(episodes) if row["cause"] == HOST.key]
    most = worst_rank(headline, steps, idle, HOST.column, host_idle_pct)
    found: dict[tuple[int, ...], Finding] = {}
    for rank in sorted({own[0] for own in late} | ({most[0]} if most else set())):
        busy = more_calls(operators, rank, busy_host_times)
        if busy is not None and busy.ranks not in found:
            found[busy.ranks] = _busy(busy, story_of_host(rank, episodes, pipeline, uneven_stages_times))
    return list(found.values())


def _busy(busy: MoreCalls, part_of: str) -> Finding:
    is_one = len(busy.ranks) == 1
    who = f"Rank {busy.ranks[0]}'s host makes" if is_one else f"The hosts of ranks {listed(busy.ranks)} each make"
    what = f", most of the more in {busy.name}" if busy.name else ""
    return Finding(
        severity="low",
        title=f"{who} {digits(busy.times)} times as many operator calls as "
        f"{busy.others} ({busy.calls:,} and {busy.others_calls:,} in the capture){what}.",
        evidence=plain(busy.rows),
        named=(*busy.ranks, *busy.only_other),
        recommendation=f"Give the hosts equal work, or launch less on {'this one' if is_one else 'these'}.",
        table="operators",
        part_of=part_of,
    )


def eager_hosts(episodes: Episodes, launches: Launches, *, eager_graphs_pct: float = EAGER_PCT) -> list[Finding]:
    """A late host launches half as large a part of its operations as CUDA graphs as the others do, or less."""
    table = launches.table.set_index("rank")
    share = (table["graph_operations"] / table["operations"].where(table["operations"] > 0)).astype("float64")
    found = []
    for row in said(episodes):
        late = [rank for rank in numbers(row["ranks"]) if rank in share.index]
        others = share.drop(index=late).median()
        if row["cause"] != HOST.key or not late or not others > 0:
            continue
        if 100 * share[late].max() <= eager_graphs_pct * others:
            found.append(_eager(late, share, others, row["gain_ns"], of_lead(episodes, row)))
    return found


def _eager(late: list[int], share: pd.Series, others: float, gain_ns: int | None, part_of: str) -> Finding:
    one = len(late) == 1
    who, whose = numbered("rank", late), "its" if one else "their"
    most = share[late].max()
    own = f"{100 * most:.0f} % of {whose} operations" if most else f"none of {whose} operations"
    return Finding(
        severity="medium",
        title=f"{first_upper(who)} launch{'es' if one else ''} {own} as CUDA graphs, the others {100 * others:.0f} %.",
        evidence=tuple({"rank": rank, "in_graphs_pct": round(100 * share[rank], 1)} for rank in late),
        recommendation=f"Find why {who} replay{'s' if one else ''} no graph where others do: a capture that failed "
        "or is switched off there, shapes that no graph was captured for, a graph break.",
        gain_ns=gain_ns,
        named=tuple(late),
        table="launches",
        part_of=part_of,
        tells_why=True,
    )


# The rule about ranks that come last to collectives of the CPU, in captures without GPU work.


FAR_APART = 2.0
"""Times in collectives of which one is this many times the other are no chance."""


LATE_TO_CPU = "late to collectives of the CPU"
"""What both rules tell of such captures (`Finding.about`)."""


def last_to_cpu_collectives(
    headline: Headline,
    host_work: HostWork,
    *,
    collectives_apart_times: float = FAR_APART,
    explained_pct: float = EXPLAINED_PCT,
) -> list[Finding]:
    """Without GPU work: a rank spends half as long in the CPU's collectives as another, and as much longer elsewhere.

    A collective of the CPU ends on no rank before the last one has come: who spends least in them came last.
    """
    if len(headline) or not len(host_work):
        return []
    times, is_of_steps = times_to_compare(host_work)
    own = times[times["role"] == COLLECTIVES].groupby("rank")["time_ns"].sum()
    if len(own) < 2 or len(own) < times["rank"].nunique() or own.max() < collectives_apart_times * own.min():
        return []
    late, early = int(own.idxmin()), int(own.idxmax())
    apart_ns = float(own[early] - own[late])
    longer = _cpu_collectives_longer(times, late, own.index)
    if longer.empty or 100 * longer.max() < explained_pct * apart_ns:
        return []
    name, a_step = str(longer.idxmax()), "a step" if is_of_steps else "in the capture"
    return [
        Finding(
            severity="medium",
            title=f"Rank {early} is {time_text(apart_ns)} {a_step} longer in collectives than rank {late}, for which "
            f"it seems to wait there: rank {late} takes {time_text(float(longer.max()))} longer than others in "
            f"{short_name(name)}.",
            evidence=plain(times.loc[times["name"] == name, ["rank", "role", "what", "name", "calls", "host_ns"]]),
            recommendation=f"Look at what rank {late} does in {short_name(name)}, or move it behind the collective.",
            caveat="A profiler slows the host; that the ranks' collectives are the same ones is not looked at.",
            is_of_hosts=True,
            named=(early, late),
            table="host_work",
            part_of=LATE_TO_CPU,
        )
    ]


def _cpu_collectives_longer(times: pd.DataFrame, late: int, ranks: pd.Index) -> pd.Series:
    """By name, how much longer than the others' median the late rank is in what its main thread does."""
    of_main = times[(times["role"] == MAIN) & (times["what"] != COLLECTIVE)]
    by_name = of_main.pivot_table(index="name", columns="rank", values="time_ns", aggfunc="sum", fill_value=0.0)
    if late not in by_name:
        return pd.Series(dtype="float64")
    others = by_name.drop(columns=late).reindex(columns=ranks.drop(late), fill_value=0.0)
    return by_name[late] - others.median(axis=1)


# Rules about captures of CPUs alone: which ranks come last to the CPU's collectives, and what they do before.


CPU_WAIT_PCT = 5.0
"""Of a step, in which a rank waits in collectives of the CPU until the last one comes."""

_AS_LATE = 0.5
"""Of how late the latest comes: ranks that do so much are late, too."""

_WHY = 0.5
"""Of what others wait: what takes a late rank so much longer than them is said."""

_GIVE_ALL = "Give all ranks the same work and as many cores; move what only some do out of the step."

_LOAD_AHEAD = (
    "Load ahead on {who}: more workers, prefetch; look for slow storage, long samples, or fewer cores than others have."
)


def late_to_cpu_collectives(
    host_meetings: HostMeetings,
    host_work: HostWork,
    host_silences: HostSilences,
    *,
    cpu_wait_pct: float = CPU_WAIT_PCT,
) -> list[Finding]:
    """Without GPU work: a rank waits for 5 % of a step in collectives of the CPU, mostly for the same few ranks.

    Few are up to half of them: those that come late by half as much as the latest, or more. What takes these longer
    than the others is said, where one thing does.
    """
    if not len(host_meetings):
        return []
    table = host_meetings.to_frame().set_index("rank")
    late = _late(table["later_ns"].astype("float64"))
    waits = table["wait_per_step_ns"].astype("float64").drop(late)
    rank = int(waits.idxmax())
    share = 100.0 * float(table.loc[rank, "wait_ns"]) / float(table.loc[rank, "window_ns"])
    if share < cpu_wait_pct or not late:
        return []
    longer = _late_to_collectives_longer(late, table.index, host_work, host_silences, float(waits[rank]))
    who = numbered("rank", late)
    come, them = ("come", "them") if len(late) > 1 else ("comes", "it")
    last, calls = int(table.loc[late, "last"].sum()), int(table["calls"].iloc[0])
    return [
        Finding(
            severity=severity(share),
            title=f"{first_upper(who)} {come} last to {last} of {calls} collectives of the CPU: rank {rank} "
            f"waits {time_text(float(waits[rank]))} a step for {them}, {share:.0f} % of a step{_why(who, longer)}.",
            evidence=plain(table.reset_index()[["rank", "calls", "last", "wait_per_step_ns", "later_per_step_ns"]]),
            recommendation=_LOAD_AHEAD.format(who=who) if longer and is_data(longer.name) else _GIVE_ALL,
            caveat="Clocks of several hosts are put together by the ends of their collectives.",
            gain_ns=round(float(waits[rank])),
            gain_is_bound=True,
            is_of_hosts=True,
            ranks=tuple(late),
            table="host_meetings",
            about=LATE_TO_CPU,
        )
    ]


def _late(later_ns: pd.Series) -> list[int]:
    """The few ranks that come late; none where it is one, then another."""
    late = later_ns.index[later_ns >= _AS_LATE * later_ns.max()]
    return sorted(map(int, late)) if 2 * len(late) <= len(later_ns) else []


class _Longer(NamedTuple):
    """What takes late ranks longer than the others: its name (empty: nothing is recorded), and how long a step."""

    name: str
    own_ns: float
    others_ns: float


def _late_to_collectives_longer(
    late: list[int], ranks: pd.Index, host_work: HostWork, host_silences: HostSilences, wait_ns: float
) -> _Longer | None:
    """What makes most of the wait; nothing where no one thing does."""
    work = host_work.table[host_work.table["role"] != COLLECTIVES]
    silent = host_silences.table.assign(name="")
    spent = pd.concat([own[["rank", "name", "host_ns", "steps"]] for own in (work, silent)], ignore_index=True)
    spent = spent.assign(host_ns=spent["host_ns"].astype("float64") / spent["steps"].astype("float64"))
    by_rank = spent.pivot_table(index="name", columns="rank", values="host_ns", aggfunc="sum").reindex(columns=ranks)
    by_rank = by_rank.fillna(0.0)
    own_ns, others_ns = by_rank[late].median(axis=1), by_rank.drop(columns=late).median(axis=1)
    longer = own_ns - others_ns
    if longer.empty or longer.max() < _WHY * wait_ns:
        return None
    name = longer.idxmax()
    return _Longer(str(name), float(own_ns[name]), float(others_ns[name]))


def _why(who: str, longer: _Longer | None) -> str:
    """`; Optimizer.step takes rank 1 31.0 ms a step, the others 1.12 ms`."""
    if longer is None:
        return ""
    times = f"{time_text(longer.own_ns)} a step, the others {time_text(longer.others_ns)}"
    if not longer.name:
        return f"; nothing is recorded of what {who} does for {times}"
    return f"; {short_name(longer.name)} takes {who} {times}"
