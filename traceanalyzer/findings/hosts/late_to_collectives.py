"""Rules about captures of CPUs alone: which ranks come last to the CPU's collectives, and what they do before."""

from typing import NamedTuple

import pandas as pd

from traceanalyzer.analyses.host.host_meetings import HostMeetings
from traceanalyzer.analyses.host.host_names import is_data
from traceanalyzer.analyses.host.host_silences import HostSilences
from traceanalyzer.analyses.host.host_work import HostWork
from traceanalyzer.analyses.host.thread_roles import COLLECTIVES
from traceanalyzer.findings.basis import plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.hosts.cpu_collectives import LATE_TO_CPU
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.sentences import first_upper

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
    longer = _longer(late, table.index, host_work, host_silences, float(waits[rank]))
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


def _longer(
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
