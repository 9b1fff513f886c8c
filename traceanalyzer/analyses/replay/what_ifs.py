"""What the job would gain if one thing were different."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, is_any, percent, ratio
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.experts import DISPATCH, Exchanges
from traceanalyzer.analyses.replay.changes import ALONE, EVEN, FASTEST, HIDDEN, IDEAL, PEERS, UNRECORDED, Change
from traceanalyzer.analyses.replay.gains import Engine, Gain
from traceanalyzer.analyses.replay.job import Lengths
from traceanalyzer.analyses.replay.lengths import no_longer_than_transfers
from traceanalyzer.analyses.replay.replay import MOST_RANKS, Replay
from traceanalyzer.analyses.replay.what_if import can_be_asked
from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model.tables import array_of, only

# What the job would gain if one thing were different: the table that stands in every report.


@dataclass(frozen=True, slots=True, repr=False)
class WhatIfs(Result):
    """One row for each change to the job, those that gain most first."""

    title: ClassVar[str] = "What if"
    keys: ClassVar[tuple[str, ...]] = ("change", "rank")
    columns: ClassVar[Mapping[str, Column]] = {
        "change": Column.text(
            "What is different; `rank as its peers` is one rank's compute, copies and host work as long as on the "
            "ranks that do the same (absent where no other does)."
        ),
        "option": Column.text("The same, as `analyze-traces what-if` takes it.", is_secondary=True),
        "rank": Column.ident("The rank that is changed; absent for all.", absent="all"),
        "before_ns": Column.time(
            "Mean length of the job's complete steps, of the capture without any, as recorded: from when the "
            "last rank began a step to when the last began the next.",
            adds=Adds.DERIVED,
        ),
        "after_ns": Column.time("The same, replayed with the change.", adds=Adds.DERIVED),
        "gain_ns": Column.time("Before − after; never negative.", adds=Adds.DERIVED),
        "gain_pct": Column.share("100 · gain / before."),
        "unprofiled_ns": Column.time(
            "The step without the change and without what recording takes the hosts: an estimated 3.2 µs for each "
            "operator and call that the PyTorch profiler wrote down; absent for other profilers.",
            adds=Adds.DERIVED,
        ),
        "unprofiled_gain_ns": Column.time("What the change gains of that step.", adds=Adds.DERIVED),
        "error_ns": Column.time(
            "By how much the replay without a change misses the recording.",
            adds=Adds.DERIVED,
            label="replay is off by",
        ),
        "error_pct": Column.share("100 · error / before."),
        "unmatched_ns": Column.time(
            "Time a rank and step in communication calls whose partners are not known: waits in them stay.",
            adds=Adds.DERIVED,
        ),
        "is_bound": Column.flag(
            "The error, or that time, is above 3 % of the step, or a rank's capture lacks its host: the gain is a "
            "bound, no forecast.",
            label="only a bound",
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        gain = (table["before_ns"] - table["after_ns"]).clip(lower=0)
        return self._with(
            table,
            {
                "gain_ns": gain,
                "gain_pct": percent(gain, table["before_ns"]),
                "error_pct": percent(table["error_ns"], table["before_ns"]),
            },
        )


STANDARD: Mapping[Change, str] = MappingProxyType(
    {
        Change("waits"): "no waits for other ranks",
        Change("comm"): "transfers take no time",
        Change("comm", HIDDEN): "transfers hidden behind compute",
        Change("copy"): "copies take no time",
        Change("host"): "CPU work takes no time",
        Change("host", FASTEST): "CPUs as fast as the fastest",
        Change("sync"): "no blocking calls",
        Change("data"): "batches ready",
        UNRECORDED: "no profiler overhead (estimate)",
        Change("compute", ALONE): "kernels as fast as without communication beside them",
        Change("compute", EVEN): "compute even over ranks",
        Change("stage", IDEAL): "balanced pipelines with their schedule's bubble alone",
    }
)
"""Changes to the whole job that every report answers."""

AS_PEERS = "rank as its peers"


def what_ifs_across(_parts: Mapping[int, pd.DataFrame], replay: Replay) -> WhatIfs:
    """Replay the standard changes, and every rank as its peers; only what the job has, and what is known of it."""
    engine = replay.engine
    scenarios = [] if engine is None else [each for each in _standard(engine) if can_be_asked(engine, each)]
    gains = engine.gains([(change,) for change in scenarios]) if engine else []
    rows = [
        {
            "change": STANDARD.get(change, AS_PEERS),
            "option": f"--{change.part} {str(change).removeprefix(change.part).strip()}",
            "rank": min(change.ranks) if change.ranks else None,
            "before_ns": gain.before_ns,
            "after_ns": gain.after_ns,
            "unprofiled_ns": gain.unprofiled_ns[0] if gain.unprofiled_ns else None,
            "unprofiled_gain_ns": gain.unprofiled_gain_ns,
            "error_ns": gain.error_ns,
            "unmatched_ns": gain.unmatched_ns,
            "is_bound": gain.is_bound,
        }
        for change, gain in zip(scenarios, gains, strict=False)
    ]
    columns = (
        "change", "option", "rank", "before_ns", "after_ns", "unprofiled_ns", "unprofiled_gain_ns", "error_ns",
        "unmatched_ns", "is_bound",
    )  # fmt: skip
    types = {**dict.fromkeys(columns[2:-1], "Int64"), "is_bound": "boolean"}
    table = pd.DataFrame(rows, columns=list(columns)).astype(types)
    return WhatIfs(table.sort_values("after_ns", kind="stable", ignore_index=True))


def _standard(engine: Engine) -> list[Change]:
    ranks = engine.job.nodes if len(engine.job.nodes) <= MOST_RANKS else ()
    to_all = [change for change in STANDARD if engine.has_cost_of_recording or change != UNRECORDED]
    return [*to_all, *(Change("rank", PEERS, frozenset({rank})) for rank in ranks)]


# What an even load of experts would gain: the job replayed with as many tokens on every rank.


_GROUP: list[str] = ["group", "group_ranks"]
_PLACE = [*_GROUP, "step", "place"]


class EvenExperts(Result):
    """One row for each group with dispatches in steps."""

    title: ClassVar[str] = "Experts: load, and what an even one gains"
    keys: ClassVar[tuple[str, ...]] = ("group", "group_ranks")
    columns: ClassVar[Mapping[str, Column]] = {
        "group_label": Column.text(
            "What the group is for and its ranks, as `groups` has it.", label="process group", is_aside_when_one=True
        ),
        "group": Column.text("Process group.", replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "dispatches": Column.count("All-to-alls that bring tokens, in steps, of a rank.", is_compared=False),
        "hot_rank": Column.ident("The rank that receives most in all of them."),
        "hot_dispatches": Column.count("Those in which it receives most.", is_compared=False),
        "mean_load_bytes": Column.size(
            "What a rank receives, its own part included: mean over ranks and dispatches.", adds=Adds.DERIVED
        ),
        "hot_load_bytes": Column.size("The same of the hot rank.", adds=Adds.DERIVED),
        "hot_over_mean": Column.number("Load of the hot rank / mean load.", label="hot / mean"),
        "before_ns": Column.time("Mean complete step of the job as recorded.", adds=Adds.DERIVED),
        "after_ns": Column.time(
            "The same, replayed with an even load in all groups at once: in each all-to-all every rank moves its "
            "group's mean, and computes as long as that mean from each dispatch to the next all-to-all. Absent "
            "without a replay.",
            adds=Adds.DERIVED,
        ),
        "gain_ns": Column.time("Before − after; never negative.", adds=Adds.DERIVED),
        "gain_pct": Column.share("100 · gain / before."),
        "error_ns": Column.time("By how much the replay without a change misses the recording.", adds=Adds.DERIVED),
        "is_bound": Column.flag("That is above 3 % of the step: the gain is a bound, no forecast."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        gain = (table["before_ns"] - table["after_ns"]).clip(lower=0)
        return self._with(
            table,
            {
                "hot_over_mean": ratio(table["hot_load_bytes"], table["mean_load_bytes"]),
                "gain_ns": gain,
                "gain_pct": percent(gain, table["before_ns"]),
                "is_bound": (percent(table["error_ns"], table["before_ns"]) > PERCENT).astype("boolean"),
            },
        )


_TIMES = ("before_ns", "after_ns", "error_ns")
_STORED = (*_GROUP, "group_label", "dispatches", "hot_rank", "hot_dispatches", "mean_load_bytes", "hot_load_bytes",
           *_TIMES)  # fmt: skip


def even_experts_across(
    _parts: Mapping[int, pd.DataFrame], exchanges: Exchanges, groups: Groups, replay: Replay
) -> EvenExperts:
    """Replay the groups' all-to-alls with an even load.

    All groups' together: one router fills them, and a step waits for the hottest rank of any.
    """
    held = exchanges.to_frame()
    held = held[held["place"].notna()]
    dispatches = held[held["direction"] == DISPATCH]
    engine = replay.engine
    gain = engine.gain_of(evened(engine, held)) if engine and len(dispatches) else None
    rows = [_row(own, gain) for _, own in dispatches.groupby(_GROUP)]
    table = pd.DataFrame(rows, columns=list(_STORED)).astype(dict.fromkeys(_TIMES, "Int64"))
    first = only(held.drop_duplicates(_GROUP).sort_values(_GROUP), ["rank", *_GROUP])
    replayed = first.merge(table[_GROUP], on=_GROUP)
    return EvenExperts(table.assign(group_label=labels(groups, replayed)) if len(table) else table)


def _row(dispatches: pd.DataFrame, gain: Gain | None) -> dict[str, object]:
    load = dispatches.groupby("rank")["load_bytes"].mean()
    hot = int(load.idxmax())
    most = dispatches.loc[dispatches.groupby(["step", "place"])["load_bytes"].idxmax(), "rank"]
    return {
        **dispatches.iloc[0][_GROUP].to_dict(),
        "dispatches": int(dispatches.groupby("rank").size().max()),
        "hot_rank": hot,
        "hot_dispatches": int((most == hot).sum()),
        "mean_load_bytes": round(load.mean()),
        "hot_load_bytes": round(load[hot]),
        "before_ns": gain and gain.before_ns,
        "after_ns": gain and gain.after_ns,
        "error_ns": gain and gain.error_ns,
    }


def evened(engine: Engine, exchanges: pd.DataFrame) -> Lengths:
    """The graph's lengths when every rank of a group moves and computes as much in each of its all-to-alls.

    All-to-alls outside steps, and computation after one whose place the others do not have, stay.
    """
    job, recorded = engine.job, engine.job.recorded
    compute = _factors(exchanges, exchanges["compute_after_ns"].where(exchanges["direction"] == DISPATCH), "mean")
    moved = exchanges[["sent_bytes", "received_bytes"]]
    most = moved.max(axis=1).groupby([exchanges[name] for name in _PLACE]).transform("max")
    # All that is sent is received: the mean of either is what each rank sends and receives of an even load.
    transfer = _factors(exchanges.assign(most=most), most, "mean", of=moved.mean(axis=1))
    timing = dict(recorded.timing)
    transfer_ns = recorded.transfer_ns.copy()
    for rank, own in exchanges.groupby("rank"):
        if rank not in job.nodes:
            continue
        ops = job.nodes[rank].piece.ops
        factor = _of_ops(ops, own, compute.loc[own.index])
        after = np.round(timing[rank].duration_ns * factor).astype(np.int64)
        timing[rank] = replace(timing[rank], duration_ns=after)
        rows = job.joins_of(rank)
        by_call = pd.Series(transfer.loc[own.index].to_numpy(), index=own["call"])
        calls = array_of(ops, "call")[array_of(job.joins, "op")[rows]]
        transfer_ns[rows] = np.round(transfer_ns[rows] * by_call.reindex(calls).fillna(1.0).to_numpy()).astype(np.int64)
        timing[rank] = replace(timing[rank], duration_ns=no_longer_than_transfers(job, timing[rank], rank, transfer_ns))
    return replace(recorded, timing=timing, transfer_ns=transfer_ns)


def _factors(table: pd.DataFrame, own: pd.Series, how: str, of: pd.Series | None = None) -> pd.Series:
    """For each row the mean over the ranks of its place / its own; 1 where a rank has none, or is not known."""
    values = (own if of is None else of).astype("Float64")
    together = values.groupby([table[name] for name in _PLACE])
    is_whole = together.transform("count") == together.transform("size")
    factor = together.transform(how) / own.astype("Float64").where(own > 0)
    return factor.where(is_whole).fillna(1.0).astype("float64")


def _of_ops(ops: pd.DataFrame, own: pd.DataFrame, factor: pd.Series) -> np.ndarray:
    """For each operation of a rank what its compute is multiplied with: that of the last all-to-all before it."""
    order = own["start_ns"].argsort(kind="stable")
    ends = (own["start_ns"] + own["duration_ns"]).to_numpy()[order]
    following = np.append(array_of(own, "start_ns")[order][1:], 0)  # nothing is known of what follows the last
    start = array_of(ops, "start_ns")
    place = np.searchsorted(ends, start, side="right") - 1
    is_own = (place >= 0) & (start < following[place]) & is_any(ops["kind"], "compute")
    of_op: np.ndarray = np.where(is_own, factor.to_numpy()[order][place], 1.0)
    return of_op
