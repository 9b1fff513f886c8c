"""Ranks that exchange nothing, one of whose GPUs takes longer for the same kernels: nobody waits for it."""

import pandas as pd

from traceanalyzer.analyses.blame.naming import named
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.what_ran import WhatRan
from traceanalyzer.analyses.spread import median_of_others
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.findings.alike import the_others
from traceanalyzer.findings.basis import lower, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.late_advice import SLOW_GPU
from traceanalyzer.findings.uneven.uneven_steps import compute_by_step
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.vocabulary import COMPUTE

SLOWER_ALONE_TIMES = 1.1
"""As long as on the others, for the same kernels."""

_STEADY = 0.5
"""Of what it computes longer in a mean step a rank does so in each, and its steps are as much longer."""


def slower_alone(
    headline: Headline, step_needs: StepNeeds, what_ran: WhatRan, *, slower_alone_times: float = SLOWER_ALONE_TIMES
) -> list[Finding]:
    """Ranks that exchange nothing, as replicas that serve: on one the same kernels take 1.1 times as long in each step.

    The others do not wait for it, so that no replay gains: its own steps are longer, by half of that at least. Else all
    wait for each other in kernels that no rule knows as communication.
    """
    frame = headline.to_frame()
    wide = compute_by_step(step_needs).dropna(axis=1)
    if len(frame) < 2 or frame["comm_ns"].fillna(0).sum() or wide.shape[1] < 2 or wide.empty:
        return []
    others = pd.DataFrame(median_of_others(wide.to_numpy().T).T, wide.index, wide.columns)
    excess = wide - others
    mean_ns = excess.mean()
    steps_ns = frame.set_index("rank")["step_mean_ns"].astype("float64").reindex(wide.columns)
    later_ns = steps_ns - median_of_others(steps_ns.to_numpy()[:, None])[:, 0]
    is_longer = (mean_ns >= (slower_alone_times - 1) * others.mean()) & (mean_ns > 0)
    is_alone = (excess.min() >= _STEADY * mean_ns) & (later_ns >= _STEADY * mean_ns)
    ratios = _ratios(excess.loc[:, is_longer & is_alone], step_needs.table, what_ran.table)
    return [
        _found(int(rank), times, (float(wide[rank].mean()), float(others[rank].mean())), float(steps_ns[rank]), frame)
        for rank, times in ratios[ratios >= slower_alone_times].items()
    ]


def _ratios(excess: pd.DataFrame, needs: pd.DataFrame, work: pd.DataFrame) -> pd.Series:
    """Of each rank how many times as long the same kernels take, where these make what it computes longer."""
    cells = excess.round().astype("int64").melt(ignore_index=False, value_name="excess_ns").reset_index()
    cells = cells.assign(part=COMPUTE.column)
    late = needs[needs["step"].isin(excess.index)].astype({"step": "int64"})
    told = named(cells, late, work)
    told = told[told["same_ns"].notna()].groupby("rank")[["same_ns", "peers_same_ns"]].agg(["sum", "count"])
    ratio = told["same_ns", "sum"] / told["peers_same_ns", "sum"].where(told["peers_same_ns", "sum"] > 0)
    return ratio[2 * told["same_ns", "count"] > len(excess)].dropna()


def _found(rank: int, times: float, needs: tuple[float, float], step_ns: float, frame: pd.DataFrame) -> Finding:
    own, others = map(time_text, needs)
    only = [int(other) for other in frame["rank"] if other != rank]
    return Finding(
        severity=lower(severity(100 * (needs[0] - needs[1]) / step_ns)),
        title=f"Rank {rank}'s GPU is slower: the same kernels take {times:.3g} times as long as on {the_others(only)} "
        f"({own} of compute a step, {others}). No communication is known, and nobody is seen to wait for it: its own "
        "steps are longer.",
        evidence=plain(frame[["rank", "step_mean_ns", "compute_ns"]]),
        recommendation=SLOW_GPU,
        named=tuple(dict.fromkeys((rank, *(only if len(only) == 1 else ())))),
        table="step_needs",
    )
