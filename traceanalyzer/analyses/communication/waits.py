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
    GROUP_LABEL,
    GROUP_RANKS,
    RANK,
    STEP_OF_LAUNCH,
    Result,
    is_true,
    percent,
    stack,
)
from traceanalyzer.analyses.communication import calls as communication_calls
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.clock_offsets import chained_offsets
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.communication.jobs import hosts_of
from traceanalyzer.analyses.communication.matching import is_ring, match, moves_only, synchronises, waits_of
from traceanalyzer.analyses.grouping import Groups as Rows
from traceanalyzer.analyses.grouping import places_of
from traceanalyzer.analyses.time.breakdown import Breakdown, known_only, side_by_side
from traceanalyzer.analyses.time.intervals import Intervals, overlapping, unions
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.meaning.vocabulary import COMM_PARTS
from traceanalyzer.model import RankTrace, whole_capture
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    as_objects,
    columns_as_they_are,
    columns_of,
    table_of,
    under_each_other,
    with_columns,
    without_rows,
)


def with_several_peers(members: pd.DataFrame, hosts: Mapping[int, str]) -> pd.DataFrame:
    """The table with `ends_together` and `is_timed`; instances of calls with several peers are split by the last start.

    Such a call ends with the last of its messages, so that its duration bounds nothing for the peers of the others: in
    each of its instances transfer is what follows the last start. That needs the ranks' clocks (`chained_offsets`);
    where nothing tells of them, the shortest duration stays, which may be a wait for another peer (not `is_timed`).
    """
    instances, calls = Rows.of(members, ["instance"]), Rows.of(members, ["rank", "call"])
    is_several = calls.largest(instances.of_row) != calls.smallest(instances.of_row)
    is_joint = np.append(instances.any(is_several[calls.of_row]), False)[instances.of_row]
    ends_together = is_true(members["is_synchronising"]).to_numpy() & (instances.of_row != NONE) & ~is_joint
    members = with_columns(members, ends_together=pd.array(ends_together, dtype="boolean"), is_timed=~is_joint)
    is_split = is_joint & members["transfer_ns"].notna()
    if not is_split.any():
        return members
    clocks = chained_offsets(members, hosts, by_last_message=False)
    held = members.loc[is_split, ["rank", "instance", "start_ns", "end_ns"]]
    told = [clocks.get(rank, (NONE, 0, 0, 0))[:2] for rank in held["rank"].tolist()]
    held[["reference", "offset"]] = np.array(told, dtype=np.int64)
    references = held.groupby("instance")["reference"]
    held = held[(references.transform("min") == references.transform("max")) & (held["reference"] != NONE)]
    starts = held["start_ns"] - held["offset"]
    last = starts.groupby(held["instance"]).idxmax()
    awaited = held["instance"].map(held["rank"].loc[last].set_axis(last.index)).astype("Int64")
    duration = held["end_ns"] - held["start_ns"]
    after = held["end_ns"] - held["offset"] - starts.groupby(held["instance"]).transform("max")
    transfer = np.minimum(after.clip(lower=0), duration)
    members = members.copy()
    members.loc[held.index, "is_timed"] = True
    members.loc[held.index, "transfer_ns"] = transfer.astype("Int64")
    members.loc[held.index, "wait_ns"] = (duration - transfer).astype("Int64")
    members.loc[held.index, "waits_for"] = awaited.where(awaited != held["rank"])
    return members


_KEPT = (
    "rank", "call", "step", "start_ns", "end_ns", "stream", "collective", "group", "group_description",
    "group_ranks", "group_size", "dtype", "size_bytes", "arguments", "peers", "is_uneven",
)  # fmt: skip


class Members(Result):
    """One row for each call in each instance that it is part of; a call in none has one row without an instance.

    Only calls that exchange messages with several peers are part of several instances.
    """

    title = "Calls and their instances"
    is_detail = True
    keys = ("rank", "call", "instance")
    columns = {
        "rank": RANK,
        "call": CALL,
        "instance": Column.ident(
            "The same collective on all ranks of its group that have a trace, or one exchange of two ranks; absent "
            "when unmatched."
        ),
        "is_whole": Column.flag("All ranks of its group have a trace; absent without an instance."),
        "step": Column.ident("Step that launched the call; absent for none."),
        "start_ns": GPU_START,
        "end_ns": GPU_END,
        "collective": COLLECTIVE,
        "group": GROUP_IF_KNOWN,
        "group_ranks": GROUP_RANKS,
        "size_bytes": Column.size("Size of the full array.", is_aside=True),
        "arguments": Column.text("Where the arguments come from, as `calls` has it."),
        "matched_by": Column.text(
            "How the instance was found: sequence, step and position, offset, or order between others. By time its "
            "calls end within 50 µs of the clocks' offset, or within half of the shortest such call."
        ),
        "is_ambiguous": Column.flag("The offset that decided had a rival with 90 % of its votes."),
        "is_synchronising": Column.flag(
            "All ranks of the instance wait alike: neither rooted nor an all-to-all that is, or may be, uneven."
        ),
        "ends_together": Column.flag(
            "Its calls end at one moment: the instance synchronises, and none of them exchanges messages with another "
            "peer beside."
        ),
        "transfer_ns": Column.time(
            "Shortest duration over the instance's ranks; absent unless it is whole, synchronises and is not "
            "ambiguous. Where one of them exchanges messages with other peers in the same call, the time from the last "
            "start, on the clock that other instances tell, to each call's end. Whether matched or not, 0 of "
            "kernels that only wait (barrier, notify, wait for a signal), and all of copies between GPUs and of "
            "kernels that never wait.",
            is_news_when_zero=True,
        ),
        "wait_ns": Column.time(
            "The call's duration − transfer; absent where that is. Of an instance that lacks a rank the duration − the "
            "shortest of those that are here: the wait for them; the rest may be a wait for the rank without a trace.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "waits_for": Column.ident(
            "The instance's rank with the least wait (that started last); absent for itself, and around a ring of "
            "more than two ranks, where each waits for the one before it."
        ),
        "why_unmatched": Column.text("Why the call is in no instance, or in one that lacks a rank."),
    }


def members_per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """All calls of the capture, whatever steps are looked at."""
    if trace.window.steps is not None:
        trace = replace(trace, window=whole_capture(trace.gpu_ops))
        calls = communication_calls.per_rank(trace)
    if calls.empty:
        return calls
    # The rank's groups of several ranks, as its file lists them: long texts, of which one row is enough.
    groups = [group for group in trace.meta.groups if trace.rank in group.ranks and len(group.ranks) > 1]
    names = [group.description.replace(";", " ").replace("=", " ") for group in groups]
    texts = [f"{name}={','.join(map(str, group.ranks))}" for name, group in zip(names, groups, strict=True)]
    listed = np.full(len(calls), None, dtype=object)
    listed[0] = ";".join(dict.fromkeys(texts))
    return with_columns(calls, world_size=pd.array([trace.meta.world_size] * len(calls), dtype="Int64"),
                        file=",".join(trace.meta.files), listed_groups=as_objects(listed),
                        is_cut=trace.meta.is_truncated)  # fmt: skip


def members_across(parts: Mapping[int, pd.DataFrame], ranks: Ranks) -> Members:
    """Match the calls; transfer = shortest duration over an instance's ranks, wait = duration − transfer."""
    calls = stack(parts, tuple(dict.fromkeys((*Members.columns, *_KEPT))))
    if calls.empty:
        return Members(calls)
    cut = calls.loc[calls["is_cut"].astype(bool), "rank"].unique() if "is_cut" in calls else ()
    matching = match(calls, parts, frozenset(map(int, cut)))
    alone = np.setdiff1d(np.arange(len(calls)), matching.members["row"])
    table = under_each_other([matching.members, table_of({"row": alone})])
    rows = array_of(table, "row")
    table = table.drop(columns="row").astype({"instance": "Int64", "is_ambiguous": "boolean"})
    table = with_columns(table, **columns_as_they_are(calls[[*_KEPT]].take(rows)))
    table["why_unmatched"] = matching.why_unmatched[rows]
    table["is_whole"] = table["why_unmatched"].isna().where(table["instance"].notna()).astype("boolean")
    table["is_synchronising"] = synchronises(calls)[rows]
    table["is_only_wait"] = (waits_of(calls) == kinds.WAIT_ONLY).to_numpy()[rows]
    table["moves_only"] = moves_only(calls)[rows]
    table["is_ring"] = is_ring(calls)[rows]
    # Of a communicator whose size the trace does not say the ranks that use it are its members.
    is_message = table["collective"].isin(kinds.POINT_TO_POINT) & ~table["is_ring"]
    is_named = table["group"].notna() | table["matched_by"].astype("str").str.endswith("group inferred")
    held = Rows.of(table, ["instance"])
    users = pd.Series(np.append(held.distinct(array_of(table, "rank")), 0)[held.of_row], dtype="Int64")
    is_of_users = (held.of_row != NONE) & ~is_message & is_named
    table["group_size"] = table["group_size"].astype("Int64").fillna(users.where(is_of_users))
    order = np.lexsort((held.of_row, table["call"], table["rank"]))  # a call in no instance has but one row
    timed = _with_waits(table, held).take(order).reset_index(drop=True)
    return Members(with_several_peers(timed, hosts_of(ranks.table)))


def _with_waits(table: pd.DataFrame, held: Rows) -> pd.DataFrame:
    columns, at = columns_of(table), held.of_row
    rank, length = columns["rank"].astype(np.int64), columns["end_ns"] - columns["start_ns"]
    # The last of each is of rows in no instance.
    is_alike = np.append(~held.any(~columns["is_synchronising"]), True)
    is_told = is_alike & ~np.append(held.any(is_true(table["is_ambiguous"]).to_numpy()), True)
    shortest = np.append(held.smallest(length), NONE)[at]
    last = np.append(rank[held.at_largest(-length)], NONE)[at]
    is_known = is_told[at]
    is_split = is_known & (columns["is_whole"].to_numpy(dtype=bool, na_value=False))
    always = np.where(columns["moves_only"], length, 0)
    is_always = columns["is_only_wait"] | columns["moves_only"]
    transfer, shared = (
        pd.arrays.IntegerArray(np.where(is_always, always, shortest), ~(is_always | known))
        for known in (is_split, is_known)
    )
    # Around a ring each rank waits for the one before it, of which only two ranks tell which that is.
    is_around = columns["is_ring"] & (columns["group_size"].to_numpy(dtype=np.int64, na_value=0) != 2)
    return with_columns(
        table,
        is_synchronising=pd.array(is_alike[at] & ~is_around, dtype="boolean"),
        transfer_ns=transfer,
        wait_ns=length - shared,
        waits_for=pd.arrays.IntegerArray(last, ~is_known | (last == rank) | is_around),
    )


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
    columns = {
        "rank": RANK,
        "call": CALL,
        "step": STEP_OF_LAUNCH,
        "start_ns": GPU_START,
        "end_ns": GPU_END,
        "collective": COLLECTIVE,
        "group": GROUP_IF_KNOWN,
        "instance": Column.ident("Instance that decides its transfer; absent when unmatched."),
        "transfer_ns": Column.time(
            "Shortest duration over the instance's ranks; absent when unknown.", is_news_when_zero=True
        ),
        "wait_ns": Column.time(
            "Duration − transfer; absent when unknown. Where a rank of the group has no trace the wait for "
            "those that have one; the rest of the call may be a wait for that rank.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "waits_for": Column.ident("Rank with the least wait in the instance; absent for itself."),
        "is_matched": Column.flag("Whether its instance is known on all ranks of its group."),
        "matched_by": Column.text("How the instance was found."),
        "is_ambiguous": Column.flag("The clock offset that decided had a rival with 90 % of its votes."),
        "why_not_split": Column.text("Why the transfer is absent."),
    }
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
    is_held = places_of(call_waits.table, calls.table, ("rank", "call")) != NONE
    return call_waits.table.take(np.flatnonzero(is_held)).reset_index(drop=True)


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


PARTS = tuple(part.column for part in COMM_PARTS)
"""Columns that add up to `exposed_comm_ns`."""


class ExposedComm(Result):
    """One row for each rank's whole window (`step` absent) and for each step; the parts add up, exactly."""

    title = "Exposed communication: transfer and wait"
    keys = ("rank", "step")
    columns = {
        "rank": RANK,
        "step": Column.ident("Step; absent for the rank's whole window."),
        "is_complete": Column.flag("Neither open nor partial: counts in means. Absent for the whole window."),
        "window_ns": Column.time("Length of the step's GPU window, or of the rank's.", better=Better.LESS),
        "exposed_comm_ns": Column.time(
            "Time in which communication but no compute runs: |∪comm − ∪compute|.", better=Better.LESS
        ),
        "exposed_transfer_ns": Column.time(
            "Part in which data moves: |∪transfer − ∪compute|.", is_news_when_zero=True, better=Better.LESS
        ),
        "exposed_wait_ns": Column.time(
            "Part in which a call waits for another rank and none moves data: |∪wait − ∪compute − ∪transfer|.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "exposed_unmatched_ns": Column.time(
            "The remainder: calls without a known instance, what follows the last rank of a group of which another has "
            "no trace, collectives with one root, uneven all-to-alls, peer-to-peer copies.",
            better=Better.LESS,
        ),
        "exposed_transfer_pct": Column.share("100 · exposed transfer / window."),
        "exposed_wait_pct": Column.share("100 · exposed wait / window."),
        "exposed_unmatched_pct": Column.share("100 · exposed unmatched / window."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        table = known_only(table, names=PARTS)
        shares = {part.share: percent(table[part.column], table["window_ns"]) for part in COMM_PARTS}
        return table.assign(**shares)  # names of the vocabulary


def exposed_comm_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The disjoint stretches of the capture in which communication but no compute runs, cut at the window's limits."""
    comm, compute = (unions(trace)[kind] for kind in ("comm", "compute"))
    exposed = comm - compute
    inside = exposed.inside(trace.window)
    outside = exposed - inside
    starts, ends = (np.concatenate([getattr(inside, name), getattr(outside, name)]) for name in ("starts", "ends"))
    order, is_looked_at = np.argsort(starts), np.arange(len(starts)) < len(inside)
    return table_of({"start_ns": starts[order], "end_ns": ends[order], "is_looked_at": is_looked_at[order]})


def exposed_comm_across(
    parts: Mapping[int, pd.DataFrame], call_waits: CallWaits, breakdown: Breakdown, steps: Steps, ranks: Ranks
) -> ExposedComm:
    """Split each window's exposed communication, in the order compute, transfer, wait."""
    windows = _windows(breakdown, steps, ranks)
    if windows.empty:
        return ExposedComm(windows.reindex(columns=[*windows, *PARTS]))
    exposed = stack(parts, STRETCH)
    split = side_by_side(_row_parts, _queries(windows, exposed), exposed, call_waits.table)
    table = with_columns(windows, **{name: split[name] for name in PARTS})
    assert (table[list(PARTS)].sum(axis=1) == table["exposed_comm_ns"]).all(), "parts must add up to exposed comm"
    return ExposedComm(table)


STRETCH = ("rank", "start_ns", "end_ns", "is_looked_at")
"""Columns of a rank's table of `per_rank` once the ranks' are under each other."""


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


def _windows(breakdown: Breakdown, steps: Steps, ranks: Ranks) -> pd.DataFrame:
    types = {
        "rank": "int64", "window_ns": "int64", "exposed_comm_ns": "int64", "opaque_ns": "int64", "start_ns": "int64",
        "step": "Int64", "is_complete": "boolean",
    }  # fmt: skip
    starts = ranks.table[["rank", "window_start_ns"]].rename(columns={"window_start_ns": "start_ns"})
    whole = breakdown.table[["rank", "window_ns", "exposed_comm_ns", "opaque_ns"]].merge(starts)
    own = steps.table[steps.table["start_ns"].notna()] if len(steps) else steps.table
    tables = [frame.reindex(columns=list(types)).astype(types) for frame in (whole, own) if len(frame)]
    table = pd.concat(tables or [whole.reindex(columns=list(types))])
    return table.sort_values(["rank", "step"], na_position="first", ignore_index=True)


def _queries(windows: pd.DataFrame, exposed: pd.DataFrame) -> pd.DataFrame:
    """From when to when each row is: the step's window, and of the whole one all stretches of the rank."""
    columns = columns_of(windows)
    is_whole = columns["step"].isna()
    starts, ends = columns["start_ns"].copy(), columns["start_ns"] + columns["window_ns"]
    of_rank, begins, reach = (exposed[name].to_numpy(dtype=np.int64) for name in STRETCH[:3])
    first, past = (np.searchsorted(of_rank, columns["rank"][is_whole], side=side) for side in ("left", "right"))
    has_any = past > first
    rows = np.flatnonzero(is_whole)
    ends[rows] = starts[rows]
    starts[rows[has_any]], ends[rows[has_any]] = begins[first[has_any]], reach[past[has_any] - 1]
    return table_of({"rank": columns["rank"], "start_ns": starts, "end_ns": ends, "is_whole": is_whole})


def _row_parts(rows: pd.DataFrame, stretches: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """The parts of each row; of the whole windows what is looked at."""
    starts, ends, is_whole = (array_of(rows, name) for name in ("start_ns", "end_ns", "is_whole"))
    exposed = exposed_of(stretches)
    looked_at = exposed_of(stretches[stretches["is_looked_at"].to_numpy(dtype=bool)])
    every, transfer, wait = (
        np.where(is_whole, (intervals & looked_at).covered_ns(starts, ends), intervals.covered_ns(starts, ends))
        for intervals in (exposed, *transfer_and_wait(exposed, calls))
    )
    return with_columns(
        rows, exposed_transfer_ns=transfer, exposed_wait_ns=wait, exposed_unmatched_ns=every - transfer - wait
    )


class Waits(Result):
    """One row for each stretch of exposed wait; a rank's rows add up to its exposed wait."""

    title = "Stretches of exposed wait"
    is_detail = True
    keys = ("rank", "start_ns")
    columns = {
        "rank": Column.ident("Global rank that waits."),
        "start_ns": Column.moment("Start."),
        "end_ns": Column.moment("End."),
        "call": Column.ident("Call that waits; of several at once, the one that began to wait first."),
        "instance": Column.ident("Its instance."),
        "waits_for": Column.ident("Rank with the least wait in the instance."),
    }


def waits_per_rank(_trace: RankTrace, exposed_comm: pd.DataFrame) -> pd.DataFrame:
    """The stretches in which communication but no compute runs, as `exposed_comm` has them."""
    return exposed_comm


def waits_across(parts: Mapping[int, pd.DataFrame], call_waits: CallWaits) -> Waits:
    """Cut each rank's exposed wait by the calls that wait."""
    exposed = stack(parts, STRETCH)
    table = exposed[:0]
    if len(exposed) and len(call_waits):
        table = side_by_side(_cut, exposed, call_waits.table)
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


KEYS = ("rank", "group", "group_ranks")


class Matches(Result):
    """One row for each rank and process group; calls whose group is unknown have a row without one."""

    title = "Calls matched over ranks"
    keys = KEYS
    is_of_one_run = True
    columns = {
        "rank": RANK,
        "group": GROUP_IF_KNOWN,
        "group_label": GROUP_LABEL,
        "group_ranks": GROUP_RANKS,
        "calls": Column.count(
            "Communication calls that are looked at; they are matched over the whole capture.", is_aside=True
        ),
        "matched_calls": Column.count("Calls whose instance was found on all ranks of the group.", is_compared=False),
        "unmatched_calls": Column.count(
            "The others; they keep their duration, their transfer and wait are not known.", is_compared=False
        ),
        "split_calls": Column.count(
            "Matched calls whose transfer and wait are known.", is_compared=False, is_secondary=True
        ),
        "unsplit_calls": Column.count(
            "Matched calls whose ranks do not wait alike, so that transfer and wait are not separated.",
            is_compared=False,
        ),
        "inferred_calls": Column.count("Calls whose arguments come from a later step.", is_compared=False),
        "matched_by": Column.text("How they were found."),
        "is_ambiguous": Column.flag(
            "A clock offset that decided had a rival with 90 % of its votes: waits of these calls are n/a."
        ),
        "why_unmatched": Column.text("Why the unmatched calls are so."),
        "why_unsplit": Column.text("Why matched calls are not split: one root, or uneven splits."),
    }


def matches_across(call_waits: CallWaits, calls: Calls, groups: Groups) -> Matches:
    """Count the calls."""
    held = looked_at(call_waits, calls)
    if held.empty:
        return Matches(held.reindex(columns=list(Matches.columns)))
    columns = columns_of(held)
    by_key = Rows.of(columns, KEYS, with_absent=True)
    is_matched = columns["is_matched"].astype(bool)
    masks = {
        "matched_calls": is_matched,
        "split_calls": ~columns["transfer_ns"].isna(),
        "inferred_calls": np.asarray(columns["arguments"] == "inferred"),
    }
    counts = {"calls": by_key.counts(), **{n: by_key.sums(mask.astype(np.int64)) for n, mask in masks.items()}}
    table = by_key.table(
        **counts,
        matched_by=by_key.told(columns["matched_by"], listed),
        is_ambiguous=pd.array(by_key.any(is_true(held["is_ambiguous"]).to_numpy()), dtype="boolean"),
        why_unmatched=by_key.told(columns["why_unmatched"], listed),
        why_unsplit=by_key.told(np.where(is_matched, columns["why_not_split"], None), listed),
        unmatched_calls=counts["calls"] - counts["matched_calls"],
        unsplit_calls=counts["matched_calls"] - counts["split_calls"],
    )
    return Matches(with_columns(table, group_label=labels(groups, table)))
