"""How uneven each all-to-all of a step is, which rank it loads most, and what even ones could save at most."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, ratio
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.experts.exchanges import Exchanges
from traceanalyzer.analyses.experts.split_sizes import DISPATCH
from traceanalyzer.analyses.names import ExchangesColumn, ExpertLayersColumn
from traceanalyzer.analyses.time.headline import shared_steps
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model.tables import without_rows

_KEYS: list[ExchangesColumn] = ["group", "group_ranks", "place"]


class ExpertLayers(Result[ExpertLayersColumn]):
    """One row for each group and all-to-all of a step, in order: means over the steps."""

    title: ClassVar[str] = "All-to-alls of a step, one by one"
    keys: ClassVar[tuple[str, ...]] = ("group", "group_ranks", "place")
    columns: ClassVar[Mapping[str, Column]] = {
        "place": Column.ident("Position among the step's all-to-alls of the group."),
        "direction": Column.text("dispatch, the combine that takes back what a dispatch brought, or exchange."),
        "range": Column.text("The user's innermost range around the launch.", written=Written.KERNEL),
        "group_label": Column.text(
            "What the group is for and its ranks, as `groups` has it.", label="process group", is_aside_when_one=True
        ),
        "group": Column.text("Process group.", replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "steps": Column.count(
            "Steps that the means are of: complete ones that all ranks share, else all.", adds=Adds.NONE
        ),
        "ranks": Column.count("Ranks whose calls were captured.", is_compared=False),
        "mean_load_bytes": Column.size(
            "What a rank receives, its own part included: mean over ranks.", adds=Adds.DERIVED
        ),
        "max_load_bytes": Column.size("The same, of the rank that receives most.", adds=Adds.EXTREME),
        "hot_rank": Column.ident("That rank; absent where all receive as much."),
        "load_max_over_mean": Column.number("Largest load / mean load.", label="load max / mean"),
        "sent_max_over_mean": Column.number(
            "What the rank that sends most sends to others / mean over ranks.", label="sent max / mean"
        ),
        "longest_ns": Column.time("Longest duration over ranks.", adds=Adds.EXTREME),
        "gbps": Column.rate("Best rate of a rank in it, decimal GB/s: the larger of sent and received / duration."),
        "transfer_at_least_ns": Column.time(
            "What the rank that moves most needs at the best rate of the group's all-to-alls.", adds=Adds.DERIVED
        ),
        "wait_at_least_ns": Column.time("Of the rank that waits most: it certainly waits so long.", adds=Adds.DERIVED),
        "wait_at_most_ns": Column.time("Of the same rank: duration − its bytes at the best rate.", adds=Adds.DERIVED),
        "saved_transfer_ns": Column.time(
            "At most saved if all ranks moved the same: (most of the larger of sent and received − their mean, for all "
            "that is sent is received) at that rate.",
            adds=Adds.DERIVED,
        ),
        "saved_compute_ns": Column.time(
            "At most saved if all ranks computed as long from a dispatch to the next all-to-all: "
            "longest − mean. Absent for others.",
            adds=Adds.DERIVED,
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(
            table,
            {
                "load_max_over_mean": ratio(table["max_load_bytes"], table["mean_load_bytes"]),
                "sent_max_over_mean": ratio(table["max_sent_bytes"], table["mean_sent_bytes"]),
            },
        )


_STORED = ("max_sent_bytes", "mean_sent_bytes")


def across(_parts: Mapping[int, pd.DataFrame], exchanges: Exchanges, steps: Steps, groups: Groups) -> ExpertLayers:
    """Compare the ranks in each all-to-all of a step; unequal counts of all-to-alls are not compared."""
    held = exchanges.to_frame()
    held = held[held["place"].notna()]
    complete = complete_steps(steps.table)
    shared = shared_steps(complete, set(held["rank"])) if len(complete) else []
    held = held[held["step"].isin(shared)] if shared else held
    # A step whose ranks have not as many all-to-alls as in the others has no places that mean the same.
    counts = held.groupby(["group", "group_ranks", "rank", "step"]).size()
    by_group = counts.groupby(["group", "group_ranks"])
    if counts.empty or (by_group.min() != by_group.max()).any():
        return ExpertLayers(without_rows([*ExpertLayers.columns, *_STORED]))
    rows = [_row(own) for _, own in held.groupby(_KEYS)]
    table = pd.DataFrame(rows)
    first = held.drop_duplicates(_KEYS).sort_values(_KEYS)[["rank", "group", "group_ranks"]].reset_index(drop=True)
    table = table.assign(group_label=labels(groups, first))
    return ExpertLayers(table.astype({"hot_rank": "Int64", "saved_compute_ns": "Int64", "place": "int64"}))


_EITHER = ["sent_bytes", "received_bytes"]


def _row(own: pd.DataFrame) -> dict[str, object]:
    """One all-to-all of a step, over ranks and steps."""
    moved = own[_EITHER].max(axis=1)
    by_rank = own.assign(moved=moved).groupby("rank")
    means = by_rank[["load_bytes", "sent_bytes", "moved", "duration_ns", "least_transfer_ns",
                     "least_wait_ns", "most_wait_ns"]].mean()  # fmt: skip
    rate = float((own["least_transfer_ns"] / moved.where(moved > 0)).mean()) if (moved > 0).any() else 0.0
    compute = by_rank["compute_after_ns"].mean()
    waits = means["least_wait_ns"].idxmax() if means["least_wait_ns"].any() else means["most_wait_ns"].idxmax()
    load = means["load_bytes"]
    is_dispatch = (own["direction"] == DISPATCH).all() and compute.notna().all()
    return {
        **own.iloc[0][[*_KEYS, "range"]].to_dict(),
        "direction": own["direction"].iloc[0],
        "steps": own["step"].nunique(),
        "ranks": len(means),
        "mean_load_bytes": round(load.mean()),
        "max_load_bytes": round(load.max()),
        "hot_rank": int(load.idxmax()) if load.max() > load.min() else pd.NA,
        "mean_sent_bytes": round(means["sent_bytes"].mean()),
        "max_sent_bytes": round(means["sent_bytes"].max()),
        "longest_ns": round(means["duration_ns"].max()),
        "gbps": own["gbps"].astype("Float64").max(),  # absent when no exchange takes any time
        "transfer_at_least_ns": round(means["least_transfer_ns"].max()),
        "wait_at_least_ns": round(means.loc[waits, "least_wait_ns"]),
        "wait_at_most_ns": round(means.loc[waits, "most_wait_ns"]),
        "saved_transfer_ns": round(rate * (means["moved"].max() - own[_EITHER].to_numpy(dtype=float).mean())),
        "saved_compute_ns": round(float(compute.max() - compute.mean())) if is_dispatch else pd.NA,
    }
