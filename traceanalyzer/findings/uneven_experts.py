"""Uneven experts: ranks whose experts get more tokens make the others wait."""

from collections.abc import Iterator

from traceanalyzer.analyses.communication.groups import TABLES, Groups
from traceanalyzer.analyses.experts import DISPATCH, ExpertLayers
from traceanalyzer.analyses.replay.changes import EVEN, Change
from traceanalyzer.analyses.replay.what_ifs import EvenExperts
from traceanalyzer.analyses.statistics import RATIO
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import digits


def uneven_experts(
    run: Run, expert_layers: ExpertLayers, even_experts: EvenExperts, groups: Groups
) -> Iterator[Finding]:
    """Dispatches load a rank's experts more than the mean rank's, and even loads would shorten the step.

    The change is compute even over ranks, forward and backward. Exchanges of embedding tables have no experts.
    """
    tables = groups.table.loc[groups.table["role"].str.contains(TABLES).fillna(value=False), "group_ranks"]
    layers = expert_layers.to_frame()
    layers = layers[(layers["direction"] == DISPATCH) & ~layers["group_ranks"].isin(tables)]
    uneven = layers[layers["load_max_over_mean"] >= RATIO]
    known = even_experts.to_frame()
    known = known[known["group_ranks"].isin(uneven["group_ranks"])]
    if uneven.empty or not run.is_worth(known["gain_ns"].max() if len(known) else 0):
        return
    times = digits(round(float(uneven["load_max_over_mean"].mean()), 2))
    hot = uneven["hot_rank"].dropna().value_counts()
    rank = int(hot.index[0])
    is_always = hot.iloc[0] == len(uneven)
    yield Finding(
        headline=f"Uneven experts: the busiest rank gets {times}× the mean rank's tokens.",
        why=f"{len(uneven)} of {len(layers)} dispatches{run.each} are uneven, and the others wait for "
        f"{f'rank {rank} in each' if is_always else f'another rank in turn, most often rank {rank}'}.",
        fix="Balance the router (auxiliary loss, capacity factor), place hot experts on different ranks, or replicate "
        "them.",
        changes=(Change("compute", EVEN),),
        named=(rank,),
        evidence=tuple(uneven[["place", "direction", "hot_rank", "max_load_bytes", "mean_load_bytes"]].head(12)
                       .astype("object").to_dict("records")),
        table="expert_layers",
    )  # fmt: skip
