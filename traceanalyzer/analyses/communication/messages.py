"""Which send and receive calls are the two ends of one message."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import typed
from traceanalyzer.analyses.communication.alignment import Alignment, align
from traceanalyzer.analyses.communication.call_lists import NO_PEER, NOT_ON_ALL, RANK_MISSING, TO_ITSELF, CallLists
from traceanalyzer.model.tables import array_of, rows_where, table_of, under_each_other


def match_messages(
    calls: pd.DataFrame, lists: CallLists, rows: np.ndarray, scope: np.ndarray, present: frozenset[int], why: np.ndarray
) -> pd.DataFrame:
    """An instance for every two calls that exchange messages, in order for each sender and receiver."""
    if not len(rows):
        return no_members()
    ends = _message_ends(calls.iloc[rows].assign(row=rows, scope=scope[rows]))
    why[rows] = NO_PEER
    if ends.empty:
        return no_members()
    is_own = ends["source"] == ends["target"]
    why[ends.loc[is_own, "row"].to_numpy()] = TO_ITSELF
    ends = ends[~is_own]
    if ends.empty:
        return no_members()
    why[array_of(ends, "row")] = NOT_ON_ALL
    why[ends.loc[~ends["source"].isin(present) | ~ends["target"].isin(present), "row"].to_numpy()] = RANK_MISSING
    parts = _channels(lists, ends.assign(has_one_peer=_has_one_peer(ends)))
    # A call may send to and receive from the same peer: that is one instance.
    pairs = under_each_other(parts)
    members = np.sort(pairs[["left", "right"]].to_numpy(), axis=1)
    is_first = ~pd.DataFrame(members).duplicated().to_numpy()
    pairs, members = pairs[is_first], members[is_first]
    why[members.ravel()] = None
    return table_of(
        {
            "row": members.ravel(),
            "instance": np.repeat(np.arange(len(pairs)), 2),
            "matched_by": np.repeat(array_of(pairs, "matched_by"), 2),
            "is_ambiguous": np.repeat(array_of(pairs, "is_ambiguous"), 2),
        }
    )


def _message_ends(calls: pd.DataFrame) -> pd.DataFrame:
    """A row for each end of each message: `row`, `scope`, `is_send`, and global ranks `source` and `target`."""
    calls = calls[calls["peers"].notna()]
    texts = typed(calls[["row", "scope", "rank", "group_ranks", "peers"]], {"peers": "object"})
    ends = texts.assign(peers=texts["peers"].str.split(", ")).explode("peers", ignore_index=True)
    if ends.empty:
        return ends.assign(is_send=False, source=0, target=0)
    words = ends["peers"].str.split(" ", expand=True)
    pairs = zip(words[1], ends["group_ranks"].astype("object"), strict=True)
    peer = np.array([global_rank(int(number), group) for number, group in pairs])
    is_send, rank = (words[0] == "send").to_numpy(), array_of(ends, "rank")
    return ends.assign(is_send=is_send, source=np.where(is_send, rank, peer), target=np.where(is_send, peer, rank))


def _has_one_peer(ends: pd.DataFrame) -> np.ndarray:
    """Whether the call of each message has no other peer, whose messages could hold up its end."""
    peer = ends["target"].where(ends["is_send"], ends["source"])
    has_one: np.ndarray = (peer.groupby(ends["row"]).transform("nunique") == 1).to_numpy()
    return has_one


def global_rank(peer: int, group_ranks: str | None) -> int:
    """The peer of a message is numbered within its group."""
    ranks = group_ranks.split(",") if isinstance(group_ranks, str) else []
    is_listed = peer < len(ranks) and ranks[peer].strip().isdigit()
    return int(ranks[peer]) if is_listed else peer


def _channels(lists: CallLists, ends: pd.DataFrame) -> list[pd.DataFrame]:
    """The pairs of each sender and receiver.

    Where NCCL buffers most messages of one direction, few of its sends end with their receives and tell nothing of the
    clocks: those are aligned by what the other direction tells.
    """
    channels = {key: _sides(part) for key, part in ends.groupby(["scope", "source", "target"], sort=False)}
    found = {key: _aligned(lists, *sides) for key, sides in channels.items()}
    for (scope, source, target), sides in channels.items():
        one, back = found[scope, source, target], found.get((scope, target, source))
        if back is not None and back.offset_ns is not None and len(one.left) < min(map(len, sides)):
            told = _aligned(lists, *sides, offset_ns=-back.offset_ns)
            if len(told.left) > len(one.left):
                found[scope, source, target] = told
    return [_pairs(found[key], *sides) for key, sides in channels.items()]


def _sides(channel: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The ends of the calls that send and of those that receive."""
    is_send = array_of(channel, "is_send")
    return rows_where(channel, is_send), rows_where(channel, ~is_send)


def _aligned(lists: CallLists, sends: pd.DataFrame, receives: pd.DataFrame, offset_ns: int | None = None) -> Alignment:
    """A call with other peers beside this one ends with its last message: its end tells nothing of this one."""
    left, right = (
        lists.of_messages(array_of(side, "row"), array_of(side, "has_one_peer"), are_sends=are_sends)
        for side, are_sends in ((sends, True), (receives, False))
    )
    return align(left, right, offset_ns)


def _pairs(found: Alignment, sends: pd.DataFrame, receives: pd.DataFrame) -> pd.DataFrame:
    """Rows `left` (sender's call) and `right` (receiver's), in order of the messages."""
    return table_of(
        {
            "left": array_of(sends, "row")[found.left],
            "right": array_of(receives, "row")[found.right],
            "matched_by": found.method,
            "is_ambiguous": found.is_ambiguous,
        }
    )


def no_members() -> pd.DataFrame:
    """An empty table of members."""
    return pd.DataFrame({"row": [], "instance": [], "matched_by": []}, dtype=np.int64).assign(is_ambiguous=False)
