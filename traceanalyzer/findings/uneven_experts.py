"""Uneven experts: ranks whose experts get more tokens make the others wait.

Ranks whose experts get more tokens compute longer, and the others wait in the next all-to-all.

**Fix.** A load-balancing loss or bias (`aux_loss`, DeepSeek's bias update), a capacity factor, or a placement that
spreads the busy experts over ranks (`--expert-placement`, EPLB).

The saving replays each layer with even loads, forward and backward.
"""

from collections.abc import Iterator

from traceanalyzer.analyses.communication.groups import TABLES, Groups
from traceanalyzer.analyses.experts import ExpertLayers
from traceanalyzer.analyses.replay.changes import EVEN, Change
from traceanalyzer.analyses.statistics import RATIO
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.vocabulary import COMPUTE

PLACE = "Uneven ranks", 5


def uneven_experts(
    run: Run,
    expert_layers: ExpertLayers,
    groups: Groups,
) -> Iterator[Finding]:
    """Dispatches load a rank's experts more than the mean rank's.

    The change is compute dealt out evenly, forward and backward: the tokens stay as many. A rank that is the busiest in
    each dispatch is a straggler. Exchanges of embedding tables have no experts.
    """
    tables = groups.table.loc[groups.table["role"].str.contains(TABLES).fillna(value=False), "group_ranks"]
    loads = run.within(expert_layers.dispatches())
    loads = loads[~loads["group_ranks"].isin(tables)]
    uneven = loads[loads["load_max_over_mean"] >= RATIO]
    if uneven.empty:
        return
    hot = uneven["hot_rank"].value_counts()
    rank, times = int(hot.index[0]), f"{uneven['load_max_over_mean'].mean():.3g}"
    who = (
        f"rank {rank} gets the most tokens in each"
        if len(hot) == 1
        else f"the busiest rank changes, most often rank {rank}"
    )
    yield Finding(
        headline=f"Uneven experts: the busiest rank gets {times}× the mean rank's tokens.",
        why=f"{len(uneven)} of {len(loads)} dispatches are uneven; {who}.",
        fix="Balance the router (auxiliary loss, capacity factor), place hot experts on different ranks, or replicate "
        "them.",
        changes=(Change("compute", EVEN),),
        ranks=(rank,) if len(hot) == 1 else (),
        cause=COMPUTE.kind if len(hot) == 1 else None,
        named=(rank,),
        evidence=tuple(
            uneven[["step", "place", "hot_rank", "max_load_bytes", "mean_load_bytes"]].head(8).astype("object")
            .to_dict("records")
        ),
        table="expert_layers",
    )  # fmt: skip
