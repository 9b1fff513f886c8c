"""A rule about experts that get more tokens than others: what even ones would gain."""

from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.experts.expert_layers import ExpertLayers
from traceanalyzer.analyses.experts.split_sizes import DISPATCH
from traceanalyzer.analyses.replay.even_experts import EvenExperts
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, about, milliseconds, plain, severity
from traceanalyzer.findings.evened import Evened, evened, uneven_dispatches
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.lateness import late_by

LEAST_SAVED_PCT = 2.0

_EVIDENCE = [
    "place", "direction", "hot_rank", "max_load_bytes", "mean_load_bytes", "longest_ns", "transfer_at_least_ns",
    "wait_at_least_ns", "wait_at_most_ns", "saved_transfer_ns", "saved_compute_ns",
]  # fmt: skip


def uneven_experts(
    expert_layers: ExpertLayers,
    even_experts: EvenExperts,
    headline: Headline,
    steps: Steps,
    episodes: Episodes,
    *,
    least_saved_pct: float = LEAST_SAVED_PCT,
) -> list[Finding]:
    """Dispatches load a rank over a tenth more than the mean, and even ones would gain at least 2 % of a step."""
    frame = expert_layers.to_frame()
    if frame.empty or not len(headline):
        return []
    step_ns = max(Basis.of(headline, steps).mean_ns(int(rank)) for rank in headline.table["rank"])
    known = evened(frame, even_experts.to_frame())
    groups = frame.groupby(["group", "group_ranks"])
    found = [_finding(own, known[key], step_ns) for key, own in groups if key in known]
    found = [replace(each, part_of=late_by(episodes, each.ranks[0], "compute") or each.part_of) for each in found]
    return [each for each in found if each.gain_ns is not None and 100 * each.gain_ns >= least_saved_pct * step_ns]


def _finding(own: pd.DataFrame, evened: Evened, step_ns: float) -> Finding:
    dispatches = own[own["direction"] == DISPATCH]
    uneven = uneven_dispatches(own)
    hot, gain_ns = evened.hot_rank, evened.gain_ns
    times = uneven.loc[uneven["hot_rank"] == hot, "load_max_over_mean"].astype("float64").mean()
    count = int((uneven["hot_rank"] == hot).sum())
    which = f"{count} of {len(dispatches)} dispatches" if count < len(dispatches) else f"the {count} dispatches"
    return Finding(
        rule="uneven_experts",
        severity=severity(100 * gain_ns / step_ns),
        title=f"Rank {hot}'s experts get {times:.2f} times the mean rank's tokens in {which} of a step; "
        f"{_gain(own, evened)}.",
        evidence=plain(own[_EVIDENCE].head(12)),
        recommendation="Even out what the router sends: balancing loss, capacity factor, another placement of the "
        "experts, copies of the experts that are asked for most.",
        caveat="The gain is of the job replayed with the mean rank's tokens on every rank, in every layer."
        if evened.is_replayed
        else "At most: as if every rank computed and moved as much as the mean one, and nothing else stood in the way.",
        gain_ns=gain_ns,
        gain_error_ns=evened.error_ns,
        gain_is_bound=evened.is_bound,
        ranks=(hot,),
        table="expert_layers",
        part_of=about("uneven compute", hot),
    )


def _gain(own: pd.DataFrame, evened: Evened) -> str:
    if evened.is_replayed and not evened.is_bound:
        return f"with even ones a step is {milliseconds(evened.gain_ns)} shorter"
    compute_ns = int(own["saved_compute_ns"].fillna(0).sum())
    part = "" if evened.is_replayed or compute_ns < evened.gain_ns else ", all of it experts' compute"
    return f"even ones would save at most {milliseconds(evened.gain_ns)}{part}"
