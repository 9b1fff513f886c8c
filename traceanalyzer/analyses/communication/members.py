"""Which instance each communication call of each rank is part of, and what its wait in it is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import Result, is_true, stack, typed
from traceanalyzer.analyses.communication import calls as all_calls
from traceanalyzer.analyses.communication.call_lists import moves_only, synchronises, waits_of
from traceanalyzer.analyses.communication.hosts import hosts_of
from traceanalyzer.analyses.communication.inferred_groups import is_ring
from traceanalyzer.analyses.communication.matching import match
from traceanalyzer.analyses.communication.several_peers import with_several_peers
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.names import MembersColumn
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Better, Column, Written
from traceanalyzer.model import RankTrace, whole_capture
from traceanalyzer.model.plain import as_objects, single_integer
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    column_of,
    columns_as_they_are,
    columns_of,
    table_of,
    under_each_other,
    with_columns,
)

_KEPT = (
    "rank", "call", "step", "start_ns", "end_ns", "stream", "collective", "group", "group_description",
    "group_ranks", "group_size", "dtype", "size_bytes", "arguments", "peers", "is_uneven",
)  # fmt: skip


class Members(Result[MembersColumn]):
    """One row for each call in each instance that it is part of; a call in none has one row without an instance.

    Only calls that exchange messages with several peers are part of several instances.
    """

    title: ClassVar[str] = "Calls and their instances"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "call", "instance")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "call": Column.ident("Position among the rank's communication operations."),
        "instance": Column.ident(
            "The same collective on all ranks of its group that have a trace, or one exchange of two ranks; absent "
            "when unmatched."
        ),
        "is_whole": Column.flag("All ranks of its group have a trace; absent without an instance."),
        "step": Column.ident("Step that launched the call; absent for none."),
        "start_ns": Column.moment("Start on the GPU."),
        "end_ns": Column.moment("End on the GPU."),
        "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
        "group": Column.text("Process group; absent when the trace does not say.", replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
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


def per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """All calls of the capture, whatever steps are looked at."""
    if trace.window.steps is not None:
        trace = replace(trace, window=whole_capture(trace.gpu_ops))
        calls = all_calls.per_rank(trace)
    if calls.empty:
        return calls
    world_size = single_integer(trace.meta.world_size).take(np.zeros(len(calls), dtype=np.int64))
    # Long texts, of which one row is enough.
    listed = np.full(len(calls), None, dtype=object)
    listed[0] = _listed(trace)
    return with_columns(calls, world_size=world_size, file=",".join(trace.meta.files),
                        listed_groups=as_objects(listed), is_cut=trace.meta.is_truncated)  # fmt: skip


def _listed(trace: RankTrace) -> str:
    """The rank's groups of several ranks, as its file lists them: what each is called, and its ranks."""
    own = [group for group in trace.meta.groups if trace.rank in group.ranks and len(group.ranks) > 1]
    texts = (f"{_plain(group.description)}={','.join(map(str, group.ranks))}" for group in own)
    return ";".join(dict.fromkeys(texts))


def _plain(description: str) -> str:
    return description.replace(";", " ").replace("=", " ")


def across(parts: Mapping[int, pd.DataFrame], ranks: Ranks) -> Members:
    """Match the calls; transfer = shortest duration over an instance's ranks, wait = duration − transfer."""
    calls = stack(parts, tuple(dict.fromkeys((*Members.columns, *_KEPT))))
    if calls.empty:
        return Members(calls)
    cut = calls.loc[calls["is_cut"].astype(bool), "rank"].unique() if "is_cut" in calls else ()
    matching = match(calls, parts, frozenset(map(int, cut)))
    members = matching.members
    alone = np.setdiff1d(np.arange(len(calls)), members["row"])
    table = under_each_other([members, table_of({"row": alone})])
    rows = array_of(table, "row")
    table = typed(table.drop(columns="row"), {"instance": "Int64", "is_ambiguous": "boolean"})
    table = with_columns(table, **columns_as_they_are(calls[[*_KEPT]].take(rows)))
    table["why_unmatched"] = matching.why_unmatched[rows]
    is_whole = table["why_unmatched"].isna()
    table["is_whole"] = is_whole.where(table["instance"].notna()).astype("boolean")
    table["is_synchronising"] = synchronises(calls)[rows]
    table["is_only_wait"] = (waits_of(calls) == kinds.WAIT_ONLY).to_numpy()[rows]
    table["moves_only"] = moves_only(calls)[rows]
    table["is_ring"] = is_ring(calls)[rows]
    held = Groups.of(table, ["instance"])
    table["group_size"] = _group_sizes(table, held)
    order = np.lexsort((held.of_row, table["call"], table["rank"]))  # a call in no instance has but one row
    timed = _with_waits(table, held).take(order).reset_index(drop=True)
    return Members(with_several_peers(timed, hosts_of(ranks.table)))


def _group_sizes(table: pd.DataFrame, held: Groups) -> pd.arrays.IntegerArray:
    """Of a communicator whose size the trace does not say: the ranks that use it are its members."""
    is_message = table["collective"].isin(kinds.POINT_TO_POINT) & ~table["is_ring"]
    is_collective = (held.of_row != NONE) & ~is_message.to_numpy()
    is_named = table["group"].notna() | table["matched_by"].astype("str").str.endswith("group inferred")
    sizes = column_of(table, "group_size")
    is_filled = np.asarray(sizes.isna()) & is_collective & is_named.to_numpy()
    used_by = np.append(held.distinct(table["rank"].to_numpy(dtype=np.int64)), NONE)[held.of_row]
    known = np.where(is_filled, used_by, sizes.to_numpy(dtype=np.int64, na_value=NONE))
    return pd.arrays.IntegerArray(known, known == NONE)


def _with_waits(table: pd.DataFrame, held: Groups) -> pd.DataFrame:
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
