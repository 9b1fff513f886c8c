"""GPUs that another process takes in turn with the job, as kernels' times tell."""

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.what_ran import OTHER_PROCESS
from traceanalyzer.analyses.kernels.time_slices import TimeSlices
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.late_advice import BY_SIGNS, SHARED_GPU
from traceanalyzer.findings.late.lateness import of_lead, said
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_text


def shared_gpus(
    headline: Headline,
    steps: Steps,
    time_slices: TimeSlices,
    episodes: Episodes,
    *,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:
    """Ranks whose kernels stand still while another process has their GPU, for 3 % of their time and more.

    Of a rank that is late by it this says how often and for how long; of another one it is a finding of its own, whose
    gain is at most what is taken from it.
    """
    if headline.table.empty or time_slices.table.empty:
        return []
    basis = Basis.of(headline, steps)
    late = {
        rank: of_lead(episodes, row)
        for row in said(episodes)
        if row["name"] == OTHER_PROCESS
        for rank in numbers(row["ranks"])
    }
    table = basis.within(time_slices.to_frame())
    found = []
    for rank, own in table.groupby("rank"):
        pct = 100 * own["taken_ns"].sum() / basis.window_ns[rank]
        if pct >= clear_gain_pct:
            found.append(_finding(int(rank), own, basis, pct, late.get(int(rank))))
    return found


def _finding(rank: int, own: pd.DataFrame, basis: Basis, pct: float, lead: str | None) -> Finding:
    slices, taken_ns = int(own["slices"].sum()), int(own["taken_ns"].sum())
    return Finding(
        severity=severity(pct),
        title=f"Rank {rank}'s kernels take {time_text(taken_ns / slices)} longer than others that do the same work "
        f"{basis.times(slices)}, whichever they are ({own['names'].max()} names in one step): so it is where another "
        "process has the GPU in time slices.",
        evidence=plain(own),
        recommendation=SHARED_GPU,
        caveat=BY_SIGNS,
        gain_ns=None if lead else round(taken_ns / basis.per),
        named=(rank,),
        table="time_slices",
        part_of=lead,
    )
