"""The rule about ranks that come last to collectives of the CPU, in captures without GPU work."""

import pandas as pd

from traceanalyzer.analyses.host.host_work import COLLECTIVE, HostWork, times_to_compare
from traceanalyzer.analyses.host.thread_roles import COLLECTIVES, MAIN
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.findings.basis import EXPLAINED_PCT, plain
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import time_text

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
    longer = _longer(times, late, own.index)
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


def _longer(times: pd.DataFrame, late: int, ranks: pd.Index) -> pd.Series:
    """By name, how much longer than the others' median the late rank is in what its main thread does."""
    of_main = times[(times["role"] == MAIN) & (times["what"] != COLLECTIVE)]
    by_name = of_main.pivot_table(index="name", columns="rank", values="time_ns", aggfunc="sum", fill_value=0.0)
    if late not in by_name:
        return pd.Series(dtype="float64")
    others = by_name.drop(columns=late).reindex(columns=ranks.drop(late), fill_value=0.0)
    return by_name[late] - others.median(axis=1)
