"""Transfer and wait of each communication call, and how exposed communication splits into them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import (
    CALL,
    COLLECTIVE,
    GPU_END,
    GPU_START,
    GROUP_IF_KNOWN,
    GROUP_RANKS,
    RANK,
    STEP_OF_LAUNCH,
    Result,
    is_true,
    stack,
)
from traceanalyzer.analyses.breakdown import by_rank
from traceanalyzer.analyses.communication import calls as communication_calls
from traceanalyzer.analyses.communication.clocks import chained_offsets, hosts_of
from traceanalyzer.analyses.communication.matching import described, match
from traceanalyzer.analyses.intervals import Intervals, overlapping, unions
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Column, declared
from traceanalyzer.model import RankTrace, whole_capture
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    as_objects,
    columns_as_they_are,
    table_of,
    under_each_other,
    with_columns,
    without_rows,
)

_KEPT = (
    "rank", "call", "step", "start_ns", "end_ns", "stream", "collective", "group", "group_description",
    "group_ranks", "group_size", "dtype", "size_bytes", "arguments", "peers", "is_uneven",
    "is_synchronising", "is_only_wait", "moves_only", "is_ring",
)  # fmt: skip


class Members(Result):
    """One row for each call in each instance that it is part of; a call in none has one row without an instance.

    Only calls that exchange messages with several peers are part of several instances.
    """

    title = "Calls and their instances"
    is_detail = True
    keys = ("rank", "call", "instance")
    columns = declared(
        rank=RANK,
        call=CALL,
        instance=(
            "The same collective on all ranks of its group that have a trace, or one exchange of two ranks; absent "
            "when unmatched."
        ),
        is_whole="All ranks of its group have a trace; absent without an instance.",
        step="Step that launched the call; absent for none.",
        start_ns=GPU_START,
        end_ns=GPU_END,
        collective=COLLECTIVE,
        group=GROUP_IF_KNOWN,
        group_ranks=GROUP_RANKS,
        size_bytes="Size of the full array.",
        arguments="Where the arguments come from, as `calls` has it.",
        matched_by=(
            "How the instance was found: sequence, step and position, offset, or order between others. By time its "
            "calls end within 50 µs of the clocks' offset, or within half of the shortest such call; messages within "
            "half of the way to the next."
        ),
        is_ambiguous="The offset that decided had a rival with 90% of its votes.",
        is_synchronising=(
            "All ranks of the instance wait alike: neither rooted nor an all-to-all that is, or may be, uneven."
        ),
        ends_together=Column.flag(
            "Its calls end at one moment: the instance synchronises, and none of them exchanges messages with another "
            "peer beside."
        ),
        transfer_ns=Column.time(
            "Shortest duration over the instance's ranks; absent unless it is whole, synchronises and is not "
            "ambiguous. Where one of them exchanges messages with other peers in the same call, the time from the last "
            "start, on the clock that other instances tell, to each call's end. Whether matched or not, 0 of "
            "kernels that only wait (barrier, notify, wait for a signal), and all of copies between GPUs and of "
            "kernels that never wait.",
            is_news_when_zero=True,
        ),
        wait_ns="The call's duration − transfer; absent where that is. Of an instance that lacks a rank the duration "
        "− the shortest of those that are here: the wait for them; the rest may be a wait for the rank without "
        "a trace.",
        waits_for="The instance's rank with the least wait (that started last); absent for itself, and around a ring "
        "of more than two ranks, where each waits for the one before it.",
        why_unmatched="Why the call is in no instance, or in one that lacks a rank.",
    )


def members_per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """All calls of the capture, whatever steps are looked at."""
    if trace.window.steps is not None:
        trace = replace(trace, window=whole_capture(trace.gpu_ops))
        calls = communication_calls.per_rank(trace)
    if calls.empty:
        return calls
    # The rank's groups of several ranks, as its file lists them: long texts, of which one row is enough.
    groups = dict.fromkeys(group.ranks for group in trace.meta.groups if trace.rank in group.ranks)
    listed = np.full(len(calls), None, dtype=object)
    listed[0] = ";".join(",".join(map(str, ranks)) for ranks in groups if len(ranks) > 1)
    launched = np.append(array_of(trace.api_calls, "start_ns"), NONE)[trace.launch[array_of(calls, "gpu_op")]]
    return with_columns(calls, world_size=pd.array([trace.meta.world_size] * len(calls), dtype="Int64"),
                        file=",".join(trace.meta.files), listed_groups=as_objects(listed),
                        is_cut=trace.meta.is_truncated, launched_ns=launched)  # fmt: skip


def members_across(parts: Mapping[int, pd.DataFrame], ranks: Ranks) -> Members:
    """Match the calls; transfer = shortest duration over an instance's ranks, wait = duration − transfer."""
    calls = stack(parts, tuple(dict.fromkeys((*Members.columns, *_KEPT))))
    if calls.empty:
        return Members(calls)
    calls = described(calls)
    cut = frozenset(calls.loc[calls["is_cut"].astype(bool), "rank"].astype(int))
    members, why_unmatched = match(calls, parts, cut)
    alone = np.setdiff1d(np.arange(len(calls)), members["row"])
    table = under_each_other([members, table_of({"row": alone})])
    rows = array_of(table, "row")
    table = with_columns(
        table.drop(columns="row").astype({"instance": "Int64", "is_ambiguous": "boolean"}),
        **columns_as_they_are(calls[[*_KEPT]].take(rows)),
        why_unmatched=why_unmatched[rows],
    )
    table["is_whole"] = table["why_unmatched"].isna().where(table["instance"].notna()).astype("boolean")
    # Of a communicator whose size the trace does not say the ranks that use it are its members.
    is_message = table["collective"].isin(kinds.POINT_TO_POINT) & ~table["is_ring"]
    is_named = table["group"].notna() | table["matched_by"].astype("str").str.endswith("group inferred")
    users = table.groupby("instance")["rank"].transform("nunique").where(is_named & ~is_message)
    table["group_size"] = table["group_size"].astype("Int64").fillna(users.astype("Int64"))
    timed = _with_waits(table).sort_values(["rank", "call", "instance"], ignore_index=True)
    return Members(_of_several_peers(timed, hosts_of(ranks.table)))


def _with_waits(table: pd.DataFrame) -> pd.DataFrame:
    """The table with transfer, wait and whom each call waits for."""
    rank, moves, length = table["rank"], table["moves_only"], table["end_ns"] - table["start_ns"]
    is_alone = table["instance"].isna()
    # A call in no instance is by itself in one.
    of = table["instance"].mask(is_alone, pd.Series(-1 - np.arange(len(table)), table.index))
    columns = table.assign(of=of, length=length, is_clear=~is_true(table["is_ambiguous"]))
    held, shortest_first = (own.groupby("of") for own in (columns, columns.sort_values("length", kind="stable")))
    agreed, last = held[["is_synchronising", "is_clear"]].transform("all"), shortest_first["rank"].transform("first")
    is_alike, is_always = agreed["is_synchronising"] | is_alone, table["is_only_wait"] | moves
    is_known, last = agreed.all(axis=1) & ~is_alone, last.sort_index()
    transfer = held["length"].transform("min").astype("Int64").mask(is_always, length.where(moves, 0))
    # Around a ring each rank waits for the one before it, of which only two ranks tell which that is.
    is_around = table["is_ring"] & (table["group_size"].fillna(0) != 2)
    return table.assign(
        is_synchronising=(is_alike & ~is_around).astype("boolean"),
        transfer_ns=transfer.where(is_always | (is_known & is_true(table["is_whole"]))),
        wait_ns=(length - transfer).where(is_always | is_known),
        waits_for=last.where(is_known & (last != rank) & ~is_around).astype("Int64"),
    )


def _of_several_peers(members: pd.DataFrame, hosts: Mapping[int, str]) -> pd.DataFrame:
    """The table with `ends_together` and `is_timed`; instances of calls with several peers are split by the last start.

    Such a call ends with the last of its messages, so that its duration bounds nothing for the peers of the others: in
    each of its instances transfer is what follows the last start. That needs the ranks' clocks (`chained_offsets`);
    where nothing tells of them, the shortest duration stays, which may be a wait for another peer (not `is_timed`).
    """
    instances = members["instance"]
    is_several = members.groupby(["rank", "call"])["instance"].transform("nunique") > 1
    is_joint = is_several.groupby(instances).transform("any").fillna(value=False).astype(bool)
    ends_together = is_true(members["is_synchronising"]) & instances.notna() & ~is_joint
    members = members.assign(ends_together=ends_together.astype("boolean"), is_timed=~is_joint)
    held = members.loc[is_joint & members["transfer_ns"].notna(), ["rank", "instance", "start_ns", "end_ns"]]
    if held.empty:
        return members
    held = held.join(chained_offsets(members, hosts, by_last_message=False), on="rank")
    references = held.groupby("instance")["reference"].transform("nunique", dropna=False)
    held = held[(references == 1) & held["reference"].notna()]
    start_ns, duration = held["start_ns"] - held["offset_ns"], held["end_ns"] - held["start_ns"]
    last = start_ns.astype("int64").groupby(held["instance"])
    after = (held["end_ns"] - held["offset_ns"] - last.transform("max")).clip(lower=0)
    transfer = after.where(after < duration, duration).astype("Int64")
    last_rank = held["rank"].loc[last.transform("idxmax")].set_axis(held.index).astype("Int64")
    split = {
        "is_timed": True,
        "transfer_ns": transfer,
        "wait_ns": duration - transfer,
        "waits_for": last_rank.where(last_rank != held["rank"]),
    }
    for name, values in split.items():
        members.loc[held.index, name] = values
    return members


AMBIGUOUS = "ambiguous: their times fit several collectives"
ONE_ROOT = "has one root: its ranks do not wait alike"
UNEVEN = "uneven all-to-all: its ranks do not wait alike"
MAYBE_UNEVEN = "all-to-all that may be uneven: the trace leaves out some of its sizes"
EXPERTS = "tokens to and from experts: its ranks send different amounts and do not wait alike"
ONE_SIDED = "one-sided: its ranks do not wait alike"
UNKNOWN = "the trace does not say which collective it is"


class CallWaits(Result):
    """One row for each communication call. The wait comes first: [start, end − transfer)."""

    title = "Transfer and wait of each call"
    is_detail = True
    keys = ("rank", "call")
    columns = declared(
        rank=RANK,
        call=CALL,
        step=STEP_OF_LAUNCH,
        start_ns=GPU_START,
        end_ns=GPU_END,
        collective=COLLECTIVE,
        group=GROUP_IF_KNOWN,
        instance="Instance that decides its transfer; absent when unmatched.",
        transfer_ns=Column.time(
            "Shortest duration over the instance's ranks; absent when unknown.", is_news_when_zero=True
        ),
        wait_ns="Duration − transfer; absent when unknown. Where a rank of the group has no trace the wait for "
        "those that have one; the rest of the call may be a wait for that rank.",
        waits_for="Rank with the least wait in the instance; absent for itself.",
        is_matched="Whether its instance is known on all ranks of its group.",
        is_ambiguous="The clock offset that decided had a rival with 90% of its votes.",
        why_not_split="Why the transfer is absent.",
    )
    stored = ("group_ranks", "size_bytes", "is_synchronising")


def call_waits_across(members: Members) -> CallWaits:
    """The instance with the shortest transfer decides for a call that exchanges messages with several peers."""
    table = members.table.sort_values(["rank", "call", "transfer_ns"], na_position="last", kind="stable")
    table = table.drop_duplicates(["rank", "call"], ignore_index=True)
    if table.empty:
        return CallWaits(table.reindex(columns=list(CallWaits.columns)))
    is_matched = is_true(table["is_whole"])
    return CallWaits(table.assign(is_matched=is_matched, why_not_split=_why(table, is_matched)))


def looked_at(call_waits: Result, calls: Result) -> pd.DataFrame:
    """The calls that are looked at: all, or those of the selected steps (they are matched over the whole capture)."""
    return call_waits.table.merge(calls.table[["rank", "call"]], on=["rank", "call"])


def listed(texts: Iterable[str]) -> str | None:
    """The distinct texts in order; absent without any."""
    return "; ".join(sorted(set(texts))) or None


def _why(table: pd.DataFrame, is_matched: pd.Series) -> pd.Series:
    # One rank's uneven splits, or splits that are not known, are those of the whole instance.
    is_uneven = is_true(table["is_uneven"]).groupby(table["instance"]).transform("any").fillna(value=False)
    is_all_to_all = table["collective"] == "all_to_all"
    reasons = {
        AMBIGUOUS: is_true(table["is_ambiguous"]),
        ONE_ROOT: table["collective"].isin(kinds.ROOTED),
        UNEVEN: is_all_to_all & is_uneven.astype(bool),
        MAYBE_UNEVEN: is_all_to_all,
        EXPERTS: table["collective"].isin(kinds.EXPERTS),
        ONE_SIDED: table["collective"] == "rma",
    }
    reason = np.select([mask.to_numpy(dtype=bool) for mask in reasons.values()], list(reasons), default=UNKNOWN)
    why = table["why_unmatched"].astype("object").where(~is_matched, pd.Series(reason, table.index, dtype="object"))
    return why.where(table["transfer_ns"].isna(), None)


def exposed_of(part: pd.DataFrame) -> Intervals:
    """A table of disjoint stretches, in order, as intervals."""
    return Intervals(*(part[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns")))


def transfer_and_wait(exposed: Intervals, calls: pd.DataFrame) -> tuple[Intervals, Intervals]:
    """Parts of the exposed stretches in which one of the calls moves data, and in which they only wait."""
    moving, waiting = moves_and_waits(calls)
    transfer = moving & exposed
    return transfer, (waiting & exposed) - transfer


def moves_and_waits(calls: pd.DataFrame) -> tuple[Intervals, Intervals]:
    """When calls, of one rank or side by side, move data, and when they wait: first, of those of which it is known."""
    starts, ends = (calls[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    transfer, wait = (calls[name].to_numpy(dtype=np.int64, na_value=NONE) for name in ("transfer_ns", "wait_ns"))
    moves, waits = transfer != NONE, wait != NONE
    return (
        Intervals.of((ends - transfer)[moves], ends[moves]),
        Intervals.of(starts[waits], (starts + wait)[waits]),
    )


class Waits(Result):
    """One row for each stretch of exposed wait; a rank's rows add up to its exposed wait."""

    title = "Stretches of exposed wait"
    is_detail = True
    keys = ("rank", "start_ns")
    columns = declared(
        rank="Global rank that waits.",
        start_ns="Start.",
        end_ns="End.",
        call="Call that waits; of several at once, the one that began to wait first.",
        instance="Its instance.",
        waits_for="Rank with the least wait in the instance.",
    )


def waits_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The stretches of the capture in which communication but no compute runs, cut at the window's limits."""
    exposed = unions(trace)["comm"] - unions(trace)["compute"]
    inside = exposed.inside(trace.window)
    parts = [table_of({"start_ns": own.starts, "end_ns": own.ends}) for own in (inside, exposed - inside)]
    return pd.concat(parts).sort_values("start_ns", kind="stable", ignore_index=True)


def waits_across(parts: Mapping[int, pd.DataFrame], call_waits: CallWaits) -> Waits:
    """Cut each rank's exposed wait by the calls that wait."""
    exposed = stack(parts, ("start_ns", "end_ns"))
    table = exposed[:0]
    if len(exposed) and len(call_waits):
        table = by_rank(_cut, exposed, call_waits.table)
    return Waits(table if len(table) else without_rows(Waits.columns))


def _cut(stretches: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    return cut_by_calls(transfer_and_wait(exposed_of(stretches), calls)[1], calls)


def cut_by_calls(wait: Intervals, calls: pd.DataFrame) -> pd.DataFrame:
    """Stretches of waiting, of all ranks side by side, cut by the calls that wait; of several at once by the first."""
    begins, lengths = array_of(calls, "start_ns"), calls["wait_ns"].to_numpy(dtype=np.int64, na_value=0)
    waiting = np.flatnonzero(lengths > 0)
    waiting = waiting[np.argsort(begins[waiting], kind="stable")]
    starts = begins[waiting]
    ends = starts + lengths[waiting]
    reach = np.maximum.accumulate(np.concatenate([starts[:1], ends]))[:-1] if len(starts) else starts
    starts, ends = np.maximum(starts, reach), np.maximum(ends, reach)
    call, piece = overlapping(starts, ends, wait)
    return table_of(
        {
            "rank": array_of(calls, "rank")[waiting[call]],
            "start_ns": np.maximum(starts[call], wait.starts[piece]),
            "end_ns": np.minimum(ends[call], wait.ends[piece]),
            **{name: calls[name].array[waiting[call]] for name in ("call", "instance", "waits_for")},
        }
    )
