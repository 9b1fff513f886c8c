"""Rules about ranks that compute nothing, in any step or from some step on, and only take part in what others do."""

from collections.abc import Iterator

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.findings.basis import Basis, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.sentences import first_upper
from traceanalyzer.model.tables import rows_where

NEXT_TO_NOTHING_PCT = 5.0
"""Of what a rank, or the others, compute in complete steps: with less there is no work."""

AS_MANY_PCT = 50.0
"""Of the collectives of the ranks that compute, in which one without work takes part."""


class _Spent(Struct, frozen=True):
    """A rank and its first step without work; how long it takes part since, in how many calls; what others compute."""

    rank: int
    step: int
    ns: int
    calls: int
    others_ns: float


def ranks_without_work(
    steps: Steps, call_waits: CallWaits, *, without_work_pct: float = NEXT_TO_NOTHING_PCT
) -> list[Finding]:
    """A rank computes in some steps and next to nothing in all later ones, but takes part in the others' collectives.

    So it is with a rank whose input has run out (torch's `Join`): its profiler makes no steps any more, the last one
    holds all that follows. It has to take part for as long as a step of the others, and in as many calls as one has:
    else it waits, or its recording ends there.
    """
    table = steps.table
    if table.empty or call_waits.table.empty:
        return []
    table = rows_where(table, table["start_ns"].notna() & table["step"].notna())
    spent = list(_spent(table, call_waits.table, without_work_pct))
    firsts = sorted({each.step for each in spent})
    return [_finding([each for each in spent if each.step == first], table) for first in firsts]


def _spent(table: pd.DataFrame, calls: pd.DataFrame, least_pct: float) -> Iterator[_Spent]:
    complete = complete_steps(table)
    usual = complete.groupby("rank")["compute_ns"].mean().astype("float64")
    table = table[table["rank"].isin(usual.index[usual > 0])]
    has_work = 100 * table["compute_ns"].astype("float64") > least_pct * table["rank"].map(usual)
    last = table[has_work].groupby("rank")["step"].max()
    is_after = table["step"].astype("float64") > table["rank"].map(last).astype("float64")
    for rank, tail in rows_where(table, is_after).groupby("rank"):  # few: all others are looked through for each
        others = complete[(complete["rank"] != rank) & complete["rank"].isin(table.loc[has_work, "rank"])]
        if others.empty:
            continue
        first = int(tail["step"].min())
        going_on = table[has_work & (table["rank"] != rank) & (table["step"] >= first)]
        of_step = calls[calls["rank"].isin(others["rank"])].groupby(["rank", "step"]).size()
        its_own = int(((calls["rank"] == rank) & (calls["step"] >= first)).fillna(value=False).sum())
        ns = int(tail["window_ns"].sum())
        takes_part = ns >= others["window_ns"].astype("float64").mean() and its_own >= max(of_step.median(), 1)
        if len(going_on) and takes_part:
            yield _Spent(int(rank), first, ns, its_own, float(others["compute_ns"].mean()))


def ranks_without_compute(
    headline: Headline,
    steps: Steps,
    call_waits: CallWaits,
    *,
    without_work_pct: float = NEXT_TO_NOTHING_PCT,
    as_many_calls_pct: float = AS_MANY_PCT,
) -> list[Finding]:
    """A rank computes next to nothing in any complete step, and takes part in as many collectives as the others.

    Its kernels may run on another GPU, or it gets no part of the batch. Messages do not count: who answers them may be
    there for that alone.
    """
    if not len(headline) or not len(call_waits):
        return []
    basis = Basis.of(headline, steps)
    compute = headline.table.set_index("rank")["compute_ns"].astype("float64") / basis.per
    usual_ns = float(compute.median() if len(compute) > 2 else compute.max())
    idle = compute.index[100 * compute < without_work_pct * usual_ns]
    calls = basis.within(call_waits.table)
    counts = calls[~calls["collective"].isin(POINT_TO_POINT)].groupby("rank").size() / basis.per
    least = as_many_calls_pct / 100 * counts.reindex(compute.index.difference(idle)).median()
    return [
        _without_compute(int(rank), float(counts[rank]), compute, usual_ns, basis)
        for rank in idle
        if counts.get(rank, 0) >= least
    ]


def _without_compute(rank: int, calls: float, compute: pd.Series, usual_ns: float, basis: Basis) -> Finding:
    when = basis.a_step
    return Finding(
        severity="high",
        title=f"Rank {rank} computes next to nothing ({time_text(compute[rank])} {when}, others "
        f"{time_text(usual_ns)}): it only takes part in collectives ({calls:.0f} {when}).",
        evidence=tuple({"rank": int(one), "compute_ns": round(ns)} for one, ns in compute.items()),
        recommendation="Look at which GPU its process uses (torch.cuda.set_device(LOCAL_RANK)), and whether it gets a "
        "part of the batch.",
        caveat="A rank that is there for something else by design has the same trace.",
        named=(rank,),
        table="breakdown",
    )


def _finding(spent: list[_Spent], table: pd.DataFrame) -> Finding:
    ranks, one = [each.rank for each in spent], len(spent) == 1
    longest = max(spent, key=lambda each: each.ns)
    windows = table[table["rank"] == longest.rank]["window_ns"].sum()
    who = first_upper(numbered("rank", ranks))
    return Finding(
        severity=severity(100 * longest.ns / windows),
        title=f"{who} compute{'s' if one else ''} nothing from step {longest.step} on: for {time_text(longest.ns)} "
        f"{'it takes' if one else 'they take'} part in the others' collectives alone ({longest.calls} calls"
        f"{'' if one else f' of rank {longest.rank}'}), while those compute {time_text(longest.others_ns)} a step.",
        evidence=tuple(
            {"rank": each.rank, "step": each.step, "without_work_ns": each.ns, "calls": each.calls} for each in spent
        ),
        recommendation="Give all ranks as many batches: a sampler that pads or drops the rest (DistributedSampler, "
        "drop_last=True), or streams that are split evenly. Join only lets the others end.",
        caveat="A rank whose part of the job ends there by design has the same trace.",
        named=tuple(ranks),
        table="steps",
    )
