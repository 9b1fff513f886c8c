"""A rule about experts that get more tokens than others: what even ones would gain."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.communication.groups import TABLES, Groups
from traceanalyzer.analyses.experts import DISPATCH, Exchanges, ExpertLayers
from traceanalyzer.analyses.grouping import by_step_and_rank
from traceanalyzer.analyses.replay.what_ifs import EvenExperts
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, Title, Won, about, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.statistics import is_beyond_chance, variance_within
from traceanalyzer.findings.stragglers.stragglers import Evened, evened, late_by, uneven_dispatches
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import gain_said, listed, step_or_capture

LEAST_SAVED_PCT = 2.0

_EVIDENCE = [
    "place", "direction", "hot_rank", "max_load_bytes", "mean_load_bytes", "longest_ns", "transfer_at_least_ns",
    "wait_at_least_ns", "wait_at_most_ns", "saved_transfer_ns", "saved_compute_ns",
]  # fmt: skip


def uneven_experts(
    expert_layers: ExpertLayers,
    exchanges: Exchanges,
    even_experts: EvenExperts,
    headline: Headline,
    steps: Steps,
    episodes: Episodes,
    groups: Groups,
    *,
    experts_saved_pct: float = LEAST_SAVED_PCT,
) -> list[Finding]:
    """Dispatches load a rank over a tenth more than the mean, and even ones would gain at least 2 % of a step.

    A rank is named where its loads are more than chance deals out from step to step.
    Exchanges of a recommender's tables have no experts.
    """
    frame = expert_layers.to_frame()
    told = groups.to_frame()
    of_tables = told.loc[told["role"].str.contains(TABLES).fillna(value=False), "group_ranks"]
    frame = frame[~frame["group_ranks"].isin(of_tables)]
    if frame.empty or not len(headline):
        return []
    basis = Basis.of(headline, steps)
    step_ns = max(basis.mean_ns(int(rank)) for rank in headline.table["rank"])
    known = evened(frame, even_experts.to_frame())
    uneven = [(own, known[key]) for key, own in frame.groupby(["group", "group_ranks"]) if key in known]
    is_replayed = any(even.is_replayed for _, even in uneven)
    found = []
    for own in [uneven] if is_replayed else [[group] for group in uneven]:  # a replay evens out all groups at once
        if own and 100 * max(even.gain_ns for _, even in own) >= experts_saved_pct * step_ns:
            late = [story for _, even in own if (story := late_by(episodes, even.hot_rank, "compute"))]
            finding = _finding(own, step_ns, exchanges.to_frame(), basis.steps)
            found.append(replace(finding, part_of=late[0] if late else finding.part_of))
    return found


def _finding(
    groups: Sequence[tuple[pd.DataFrame, Evened]], step_ns: float, exchanges: pd.DataFrame, steps: int | None
) -> Finding:
    own, even = pd.concat([own for own, _ in groups]), groups[0][1]
    uneven = pd.concat([_of_rank(uneven_dispatches(own), even.hot_rank) for own, even in groups])
    hot = sorted({even.hot_rank for own, even in groups if _is_always_hot(own, even.hot_rank, exchanges)})
    times = uneven["load_max_over_mean"].astype("float64").mean()
    dispatches = (own["direction"] == DISPATCH).sum()
    count = len(uneven)
    which = f"{count} of {dispatches} dispatches" if count < dispatches else f"the {count} dispatches"
    whose, mean = _whose(hot)
    return Finding(
        severity=severity(100 * even.gain_ns / step_ns),
        title=Title(f"{whose} {times:.2f} times {mean} tokens in {which} of a step; ", _gain(own, even, steps), "."),
        evidence=plain(own[_EVIDENCE].head(12)),
        recommendation="Even out what the router sends to the experts: by a balancing loss, a capacity factor, another "
        "placement of the experts, or copies of those that are asked for most.",
        caveat="The gain is of the job replayed with the mean rank's tokens on every rank, in every layer."
        if even.is_replayed
        else "At most: as if every rank computed and moved as much as the mean one, and nothing else stood in the way.",
        gain_ns=even.gain_ns,
        gain_error_ns=even.error_ns,
        gain_is_bound=even.is_bound,
        ranks=tuple(hot),
        table="expert_layers",
        part_of=about("uneven compute", groups[0][1].hot_rank),
        tells_why=True,
    )


def _whose(hot: Sequence[int]) -> tuple[str, str]:
    """Whose experts get how many times whose tokens."""
    if not hot:
        return "Those experts that get most, another rank's from step to step, get on average", "the mean rank's"
    one = f"Rank {hot[0]}'s experts get", "the mean rank's"
    return one if len(hot) == 1 else (f"The experts of ranks {listed(hot)} get", "their groups' mean rank's")


def _is_always_hot(own: pd.DataFrame, hot: int, exchanges: pd.DataFrame) -> bool:
    """Whether any of the group's dispatches that load the rank most do so by more than chance.

    How far loads lie apart by chance is that of all of them: in four steps of one dispatch the same rank may be first.
    """
    is_own = (exchanges["group"] == own["group"].iloc[0]) & (exchanges["group_ranks"] == own["group_ranks"].iloc[0])
    held = exchanges[is_own & exchanges["step"].notna()].astype({"step": "int64"})
    uneven = uneven_dispatches(own)
    loads = {place: by_step_and_rank(held[held["place"] == place], "load_bytes").dropna() for place in uneven["place"]}
    asked = sum(wide.shape[1] for wide in loads.values())
    variance = variance_within([*loads.values()])
    return any(is_beyond_chance(loads[place], [hot], variance, asked) for place in _of_rank(uneven, hot)["place"])


def _of_rank(dispatches: pd.DataFrame, hot: int) -> pd.DataFrame:
    return dispatches[dispatches["hot_rank"] == hot]


def _gain(own: pd.DataFrame, evened: Evened, steps: int | None) -> str:
    if evened.is_replayed and not evened.is_bound:
        return Title(f"with even ones {step_or_capture(steps)} is ", Won(evened.gain_ns, is_bound=False))
    compute_ns = int(own["saved_compute_ns"].fillna(0).sum())
    part = "" if evened.is_replayed or compute_ns < evened.gain_ns else ", all of it experts' compute"
    return f"even ones would save {gain_said(time_text(evened.gain_ns), is_bound=True)}{part}"
