"""Which calls of all ranks are one collective, or the two ends of one message."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer import kinds
from traceanalyzer.analyses.grouping import Groups, number_in_group, rows_of_each
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.meaning.columns import numbers
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    columns_of,
    nowhere,
    rows_where,
    whole_of,
)

BIN_NS = 50_000
"""Width of a bin of differences, in which the ends of one collective lie on two ranks, but for long calls."""

MOST = 0.9
"""Of the winner's votes, or of calls: what has as many is a rival, or agrees."""

LEAST_UNCERTAINTY_NS = 30_000
"""Ranks of one host, whose clock is the same, show medians of ends of up to 29 µs."""

_MOST_PAIRS = 1_000_000

_MOST_DRIFT = 1e-4
"""Clocks that are further apart a second are no clocks: the candidates are wrong."""

METHODS = ("sequence", "step and position", "offset", "order between others")
"""How a pair is found, surest first."""

BY_SEQUENCE, BY_STEP, BY_TIME, BY_ORDER = range(len(METHODS))

INFERRED_METHODS = (*METHODS, *(f"{method}; group inferred" for method in METHODS))
"""Of calls that name no group the ranks that run them in the same order, to ends that fit, are one group."""


# Which calls of two ranks belong together, within one process group.
#
# First by NCCL's sequence number when both ranks have it, else by the step and the position in it. That is
# verified step by step; calls for which it fails are matched by the time of their ends, at the offset that the
# verified calls, else a vote, agree on.


@dataclass(frozen=True, slots=True)
class CallList:
    """Calls of one rank in one group, in order of time; arrays of one length.

    Attributes:
        end_ns: ends, on the rank's own clock.
        signature: calls can only belong together when these are equal.
        step: step number, -1 for none.
        sequence: NCCL's sequence number, -1 for none.
        is_synchronising: its ends are the same moment on both ranks.
        near_ns: how far apart these may be: half of the shortest such call, of a message half of the way to its
            neighbours, which are not as near, and a bin at least. Ends of large all-reduces beside compute were seen
            160 µs off the clocks' offset.
        are_messages: sends may end long before their receives do, for NCCL buffers them (seen up to 25 MB): their order
            tells more than their times.
    """

    end_ns: np.ndarray
    signature: np.ndarray
    step: np.ndarray
    sequence: np.ndarray
    is_synchronising: np.ndarray
    near_ns: np.ndarray
    are_messages: bool = False

    def __len__(self) -> int:
        return len(self.end_ns)


class Alignment(Struct, frozen=True):
    """Pairs of positions, in order, and how each was found.

    Attributes:
        left: positions in the left list.
        right: positions in the right list.
        method: of each pair the position in `METHODS`.
        offset_ns: left clock minus right clock; `None` when nothing synchronises.
        is_ambiguous: two offsets had nearly the same number of votes.
    """

    left: np.ndarray
    right: np.ndarray
    method: np.ndarray
    offset_ns: int | None
    is_ambiguous: bool = False


def align(left: CallList, right: CallList) -> Alignment:
    """Match two ranks' calls; those without a partner are in no pair."""
    pairs, method = _candidates(left, right)
    steady = _without_drift(left, right, pairs)
    is_good, offset_ns = _verified(steady, right, pairs, method)
    verified, is_ambiguous = int(is_good.sum()), False
    is_sure = verified == len(pairs) > 0 or _are_apart(left, right)
    decided = None if is_sure else vote(left, right)
    voted_ns, votes, has_rival = decided or (0, 0, True)
    # A rank whose step numbers are one higher looks right where all steps are as long: the one that is not tells.
    is_refuted = (
        method == BY_STEP
        and not has_rival
        and votes > verified
        and abs(voted_ns - (offset_ns or 0)) > left.near_ns.max()
    )
    if 2 * verified >= max(len(pairs), 1) and not is_refuted:
        left, pairs = steady, pairs[is_good]
    elif decided is None:  # what is verified stays, and nothing is added to it
        pairs, offset_ns = pairs[is_good], None
    else:
        pairs, offset_ns, is_ambiguous = pairs[:0], voted_ns, has_rival
    methods = np.full(len(pairs), method, dtype=np.int64)
    for find, how in ((_nearest, BY_TIME), (_in_gaps, BY_ORDER)):
        if offset_ns is None:
            break
        found = np.concatenate([pairs, find(left, right, pairs, offset_ns)])
        methods = np.append(methods, np.full(len(found) - len(pairs), how, dtype=np.int64))
        order = np.argsort(found[:, 0], kind="stable")
        pairs, methods = found[order], methods[order]
    return Alignment(pairs[:, 0], pairs[:, 1], methods, offset_ns, is_ambiguous)


def _candidates(left: CallList, right: CallList) -> tuple[np.ndarray, int]:
    """Pairs by sequence number, else by step and position, and how they were found."""
    if len(left) and len(right) and (left.sequence != NONE).all() and (right.sequence != NONE).all():
        return _equal_keys(left.sequence, right.sequence), BY_SEQUENCE
    pairs = _equal_keys(left.step, right.step)
    # Without ends that tell, calls outside steps are one more block.
    tells = left.is_synchronising.any() and right.is_synchronising.any()
    return pairs[left.step[pairs[:, 0]] != NONE] if tells else pairs, BY_STEP


def _equal_keys(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Pairs of positions whose key, and position among equal keys, are the same, in order of the left ones."""
    width, keys = max(len(left), len(right), 1), np.unique(np.concatenate([left, right]))
    codes = [np.searchsorted(keys, side) * width + number_in_group(side) for side in (left, right)]
    _, first, second = np.intersect1d(*codes, return_indices=True)
    pairs = np.stack([first, second], axis=1).astype(np.int64)
    return pairs[np.argsort(first, kind="stable")]


def _without_drift(left: CallList, right: CallList, pairs: np.ndarray) -> CallList:
    """The left calls on a clock that runs as fast as the right one, if the candidates suggest a credible drift.

    Clocks of two hosts may drift apart by tens of µs a second, more than a bin in a long capture.
    """
    rows, cols = pairs[left.is_synchronising[pairs[:, 0]] & right.is_synchronising[pairs[:, 1]]].T
    if len(rows) < 3 or left.are_messages:
        return left
    ends, third = left.end_ns[rows], len(rows) // 3
    sides = (
        values[part] for values in (ends - right.end_ns[cols], ends) for part in (slice(third), slice(-third, None))
    )
    begin, end, first, last = map(np.median, sides)
    rate = (end - begin) / max(last - first, 1)
    if abs(rate) > _MOST_DRIFT:
        return left
    return replace(left, end_ns=left.end_ns - np.round(rate * (left.end_ns - np.median(ends))).astype(np.int64))


def _verified(left: CallList, right: CallList, pairs: np.ndarray, method: int) -> tuple[np.ndarray, int | None]:
    """Mask of the pairs whose whole step agrees in signatures and ends, and their offset.

    Positions in a step also need the same number of calls on both ranks, which sequence numbers do not; that alone
    verifies steps without synchronising calls. A message is never received before it is sent.
    """
    rows, cols = pairs.T
    is_same = left.signature[rows] == right.signature[cols]
    synchronises = left.is_synchronising[rows] & right.is_synchronising[cols]
    apart = left.end_ns[rows] - right.end_ns[cols]
    known = apart[synchronises & is_same]
    offset_ns = int(np.median(_densest(known, BIN_NS) if left.are_messages else known)) if len(known) else None
    is_near = np.abs(apart - (offset_ns or 0)) <= np.minimum(left.near_ns[rows], right.near_ns[cols])
    if left.are_messages:
        is_near |= apart < (offset_ns or 0)
    steps, code = np.unique(left.step[rows], return_inverse=True)
    masks = (synchronises, synchronises & is_near, ~is_same)
    calls, near, unlike = (np.bincount(code[mask], minlength=len(steps)) for mask in masks)
    is_good = (near >= MOST * calls) & (unlike == 0)
    if method == BY_STEP:
        numbers_of = [np.searchsorted(steps, side.step[np.isin(side.step, steps)]) for side in (left, right)]
        is_good &= np.equal(*(np.bincount(number, minlength=len(steps)) for number in numbers_of))
    return is_good[code], offset_ns


def _are_apart(left: CallList, right: CallList) -> bool:
    """Whether the ranks were recorded one after the other: no step in common, and no moment."""
    steps, others = (side.step[side.step != NONE] for side in (left, right))
    if not len(steps) or not len(others) or np.isin(steps, others).any():
        return False
    return bool(left.end_ns.min() > right.end_ns.max() or right.end_ns.min() > left.end_ns.max())


Vote = tuple[int, int, bool]
"""Left clock minus right clock, how many pairs are for it, and whether another offset has nearly as many."""


def vote(left: CallList, right: CallList) -> Vote | None:
    """The offset of two ranks' synchronising calls that most pairs agree on.

    Every compatible pair votes for the difference of its ends, in bins of 50 µs; where these are not agreed on, in
    bins as wide as such calls' ends may be apart. `None` where half of the calls that may be in pairs agree on neither.
    """
    own, others = (np.flatnonzero(side.is_synchronising) for side in (left, right))
    rows, cols = _compatible_pairs(left.signature[own], right.signature[others])
    if not len(rows):
        return None
    apart = left.end_ns[own][rows] - right.end_ns[others][cols]
    voters = min(len(np.unique(rows)), len(np.unique(cols)))
    wide_ns = 2 * int(min(np.median(left.near_ns[own]), np.median(right.near_ns[others])))
    ways = (_winner(apart, width_ns, voters) for width_ns in (BIN_NS, wide_ns))
    # A clear one comes before one that has a rival.
    return min((way for way in ways if way is not None), key=lambda way: way[2], default=None)


def _winner(apart: np.ndarray, width_ns: int, voters: int) -> Vote | None:
    """The winner; bins begin at every half of their width, to split no cluster.

    Of a bin that may hold more than one call of each the offset is where differences lie densest: true pairs agree
    closely, pairs with the call before or behind scatter.
    """
    half_ns = width_ns // 2
    held, count = np.unique(apart // half_ns, return_counts=True)
    bins, place = np.unique(np.concatenate([held - 1, held]), return_inverse=True)
    counts = np.bincount(place, np.tile(count, 2))
    winner, votes = bins[np.argmax(counts)], counts.max()
    if votes < SHARE * voters:
        return None
    near = apart[np.abs(apart - (winner + 1) * half_ns) <= width_ns]
    rival = counts[np.abs(bins - winner) > 3].max(initial=0)
    return int(np.median(_densest(near, BIN_NS // 5))), int(votes), bool(rival >= MOST * votes)


def _densest(differences: np.ndarray, width_ns: int) -> np.ndarray:
    """Those that most others are near to."""
    ordered = np.sort(differences)
    count = np.searchsorted(ordered, ordered + width_ns, side="right") - np.arange(len(ordered))
    first = int(count.argmax())
    return ordered[first : first + int(count[first])]


def _compatible_pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions (left, right) of all pairs with equal signatures; beyond a million an even sample of the left ones."""
    order = np.argsort(right, kind="stable")
    first, past = (np.searchsorted(right[order], left, side=side) for side in ("left", "right"))
    voters = np.flatnonzero(past > first)
    voters = voters[:: max(-(-int((past - first).sum()) // _MOST_PAIRS), 1)]
    count = (past - first)[voters]
    within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(voters, count), order[np.repeat(first[voters], count) + within]


def _left_over(side: CallList, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the other calls, and how many of those taken are before each."""
    free = np.setdiff1d(np.arange(len(side)), taken)
    return free, np.searchsorted(np.sort(taken), free)


def _nearest(left: CallList, right: CallList, pairs: np.ndarray, offset_ns: int) -> np.ndarray:
    """Synchronising calls that are each other's nearest in time, as near as ends are, and compatible.

    They keep the order of the given pairs: a group's calls run in the same order on all ranks.
    """
    (rows, gaps), (cols, others) = (_left_over(side, pairs[:, at]) for at, side in enumerate((left, right)))
    is_own, is_other = left.is_synchronising[rows], right.is_synchronising[cols]
    rows, gaps, cols, others = rows[is_own], gaps[is_own], cols[is_other], others[is_other]
    if not len(rows) or not len(cols):
        return pairs[:0]
    ends, times = left.end_ns[rows] - offset_ns, right.end_ns[cols]
    there, back = _closest(ends, times), _closest(times, ends)
    cols, others, apart = cols[there], others[there], np.abs(ends - times[there])
    is_pair = (back[there] == np.arange(len(rows))) & (left.signature[rows] == right.signature[cols])
    is_pair &= (gaps == others) & (apart <= np.minimum(left.near_ns[rows], right.near_ns[cols]))
    return np.stack([rows, cols], axis=1)[is_pair]


def _closest(times: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Position in `others` of the nearest to each time; ends are nearly sorted, so sort first."""
    order = np.argsort(others, kind="stable")
    ordered = others[order]
    after = np.minimum(np.searchsorted(ordered, times), len(ordered) - 1)
    before = np.maximum(after - 1, 0)
    return order[np.where(np.abs(times - ordered[before]) <= np.abs(ordered[after] - times), before, after)]


def _in_gaps(left: CallList, right: CallList, pairs: np.ndarray, offset_ns: int) -> np.ndarray:
    """Calls between two matched ones, when both ranks have the same ones there.

    Ends of those that synchronise must still be near: each rank may have lost another call of the gap. A send may end
    before its receive, not after.
    """
    (rows, gaps), (cols, others) = (_left_over(side, pairs[:, at]) for at, side in enumerate((left, right)))
    inside = _equal_keys(gaps, others)
    rows, gap, cols = rows[inside[:, 0]], gaps[inside[:, 0]], cols[inside[:, 1]]
    later_ns = left.end_ns[rows] - right.end_ns[cols] - offset_ns
    is_far = (later_ns if left.are_messages else np.abs(later_ns)) > 4 * BIN_NS
    differs = (is_far & left.is_synchronising[rows] & right.is_synchronising[cols]) | (
        left.signature[rows] != right.signature[cols]
    )
    counts = [np.bincount(each, minlength=len(pairs) + 1) for each in (gaps, others, gap[differs])]
    is_whole = (counts[0] == counts[1]) & (counts[2] == 0)
    is_whole[[0, len(pairs)]] = False
    return np.stack([rows, cols], axis=1)[is_whole[gap]]


# What calls say of themselves.


NOT_WAITING_ALIKE = (*kinds.ROOTED, *kinds.EXPERTS, "rma", "unknown")
"""Collectives whose ranks do not wait for each other alike."""

NO_ARGUMENTS = "the trace does not say its process group"
NO_PEER = "the trace does not say its peers"
PEER_COPY = "a copy between GPUs has no counterpart"
TO_ITSELF = "a message of a rank to itself waits for nobody"
GROUP_UNKNOWN = "the ranks of its group are not known"
OF_ONE_RANK = "a group of one rank waits for nobody"
RANK_MISSING = "a rank of its group has no trace"
RANK_CUT = "a rank of its group has a file that is cut off before"
NOT_ON_ALL = "not seen on every rank of its group"


def waits_of(calls: pd.DataFrame) -> pd.Series:
    """What each call's duration holds by its kernel: `only` waiting, waiting for `peers` too, `no` waiting; else NA."""
    kernels = map(kinds.comm_kernel, calls["name"].astype("str"))
    return pd.Series([kernel and kernel.waits for kernel in kernels], index=calls.index, dtype="object")


def described(calls: pd.DataFrame) -> pd.DataFrame:
    """The calls with what their kernels and arguments say.

    `library` and `waits` of the kernel; `never_names_group`: it is launched by no host call with arguments, as those of
    NCCL's rivals; `is_copy`: between GPUs, those too that carry out a collective; `is_only_wait` and `moves_only` (it
    waits for nobody); `is_ring`: it sends to one rank of a group and receives from another, which are the same in
    groups of two; `is_synchronising`: all ranks wait for each other, as rooted collectives and all-to-alls that are, or
    may be, uneven do not.
    """
    kernels = [*map(kinds.comm_kernel, calls["name"].astype("str"))]
    waits, never = waits_of(calls), np.array([kernel is not None and kernel.sizes != kinds.CALL for kernel in kernels])
    is_copy = (calls["collective"] == "peer_copy") | (calls["activity"] == "memcpy")
    is_uneven = calls["is_uneven"].fillna(value=(calls["collective"] == "all_to_all")).astype(bool)
    return calls.assign(
        library=[kernel and kernel.library for kernel in kernels],
        waits=waits,
        never_names_group=never,
        is_copy=is_copy,
        is_only_wait=waits == kinds.WAIT_ONLY,
        moves_only=is_copy | (waits == kinds.NEVER),
        is_ring=(calls["collective"] == "send_recv") & never,
        is_synchronising=~calls["collective"].isin(NOT_WAITING_ALIKE) & ~is_uneven,
    )


def _signatures(calls: pd.DataFrame) -> np.ndarray:
    """Equal for calls that can be one collective: operation, dtype and sizes, else kernel and grid.

    Ranks of an all-to-all may send different sizes.
    """
    columns, sizes = columns_of(calls), whole_of(calls, "size_bytes")
    columns["size_bytes"] = np.where(calls["collective"] == "all_to_all", NONE, sizes)
    group, kernel = (
        Groups.of(columns, names, with_absent=True).of_row
        for names in (("collective", "dtype", "size_bytes"), ("name", "grid"))
    )
    return np.where(calls["group"].isna(), len(calls) + kernel, group)


def messages_of(calls: pd.DataFrame) -> pd.DataFrame:
    """A row for each message of the calls that name peers: `is_send`, and the global rank of its `peer`.

    A peer is a position in its process group; without the group's ranks it is read as the global rank.
    """
    held = rows_where(calls, calls["peers"].notna())
    held = held.assign(peers=held["peers"].astype("object").str.split(", ")).explode("peers", ignore_index=True)
    words = held["peers"].astype("object").str.extract(r"(send|recv) (\d+)$")
    is_known = words[1].notna().to_numpy()
    held, words = held[is_known].reset_index(drop=True), words[is_known]
    pairs = zip(words[1], held["group_ranks"].astype("object"), strict=True)
    peers = [_global_rank(int(number), group) for number, group in pairs]
    return held.assign(is_send=(words[0] == "send").to_numpy(), peer=np.array(peers, dtype=np.int64))


def _global_rank(peer: int, group_ranks: object) -> int:
    ranks = group_ranks.split(",") if isinstance(group_ranks, str) else []
    return int(ranks[peer]) if peer < len(ranks) and ranks[peer].strip().isdigit() else peer


# The calls of all ranks.


def match(
    calls: pd.DataFrame, ranks: Iterable[int], cut: frozenset[int] = frozenset()
) -> tuple[pd.DataFrame, np.ndarray]:
    """Match the calls (`described`) of all ranks, in order of time within a rank; `ranks` are those that have a trace.

    The first table has a row for each call in each instance that it is part of: `row` (position in `calls`),
    `instance` (numbered by its first start), `matched_by`, `is_ambiguous`. The second says for every call why it is in
    none, or in one that lacks a rank; `None` for all others.

    Of the ranks in `cut` the files end before the others': what they lack is a call of the others all the same.
    Kernels that spin on peers but name no group are matched over all ranks of the job, or over those groups that the
    ranks' files list or other calls name: where their order and ends agree best.
    """
    job = _Job(calls, frozenset(ranks))
    is_named = calls["group"].notna().to_numpy()
    is_copy, never = (calls[name].to_numpy() for name in ("is_copy", "never_names_group"))
    # Where no call names its group all are taken for one: ends decide. Not so kernels that never name one.
    is_scoped = (is_named if is_named.any() else ~never) & ~is_copy
    job.why[~is_scoped] = NO_ARGUMENTS
    job.why[is_copy] = PEER_COPY
    scope = Groups.of(calls, ("group", "group_ranks"), by_appearance=True, with_absent=True).of_row
    is_message = calls["collective"].isin(kinds.POINT_TO_POINT).to_numpy()
    collective = np.flatnonzero(is_scoped & ~is_message)
    tables = [job.collectives(collective[own], cut) for own in rows_of_each(scope[collective])]
    if not is_named.any():
        tables = [table for table in tables if job.is_of_one_clock(table)]
    # Neither one-sided kernels nor signals wait for a group; those that send and receive around a ring do.
    spins = calls["waits"].isin((kinds.PEERS, kinds.WAIT_ONLY)) & ~calls["collective"].isin(_ONE_TO_ONE)
    spins &= ~calls["name"].astype("str").str.contains("_signal") & ((calls["collective"] != "send_recv") | never)
    spinning = np.flatnonzero(spins.to_numpy() & ~is_scoped & ~is_copy)
    tables += job.inferred(spinning)
    tables.append(job.messages(np.flatnonzero(is_scoped & is_message), scope))
    return _numbered(job.start_ns, tables), job.why


def _members(row: Any = (), instance: Any = (), matched_by: Any = 0, *, is_ambiguous: Any = False) -> pd.DataFrame:
    whole = {"row": np.asarray(row, dtype=np.int64), "instance": np.asarray(instance, dtype=np.int64)}
    return pd.DataFrame({**whole, "matched_by": matched_by, "is_ambiguous": is_ambiguous})


def _joined(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The tables under each other, each one's instances numbered behind those of the ones before."""
    made = [_members()]
    for table in tables:
        made.append(table.assign(instance=table["instance"] + sum(map(len, made))))
    return pd.concat([table for table in made if len(table)] or made, ignore_index=True)


def _numbered(start_ns: np.ndarray, tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The tables under each other, instances numbered over all of them by their first start."""
    members = _joined(tables)
    first_ns = pd.Series(start_ns[members["row"]]).groupby(members["instance"]).transform("min")
    members = members.iloc[np.lexsort((members["instance"], first_ns))].reset_index(drop=True)
    methods = np.array(INFERRED_METHODS, dtype=object)[members["matched_by"]]
    instance = pd.factorize(members["instance"])[0]
    return members.assign(instance=instance, matched_by=pd.Series(methods, dtype="object"))


_ONE_TO_ONE = ("rma", "unknown", "send", "recv")

Partition = tuple[frozenset[int], ...]
"""Groups of one size of which no rank is in two; none where the groups are not known."""


class _Job:
    """Columns of the calls of all ranks as arrays, the ranks that have a trace, and `why` a call is unmatched."""

    def __init__(self, calls: pd.DataFrame, present: frozenset[int]) -> None:
        self.calls, self.present = calls, present
        columns = ("rank", "start_ns", "end_ns", "launched_ns")
        self.rank, self.start_ns, self.end_ns, self.launched_ns = arrays_of(calls, *columns)
        self.step, self.sequence = (whole_of(calls, name) for name in ("step", "sequence"))
        self.signature, self.synchronises = _signatures(calls), array_of(calls, "is_synchronising")
        self.why = np.full(len(calls), None, dtype=object)

    def list_of(self, rows: np.ndarray) -> CallList:
        """Calls of one rank in one group."""
        own = Groups.of_numbers(self.signature[rows])
        shortest = own.smallest(self.end_ns[rows] - self.start_ns[rows])[own.of_row]
        columns = (self.end_ns, self.signature, self.step, self.sequence, self.synchronises)
        end_ns, signature, step, sequence, tells = (values[rows] for values in columns)
        return CallList(end_ns, signature, step, sequence, tells, np.maximum(shortest // 2, BIN_NS))

    def messages_in(self, ends: pd.DataFrame) -> CallList:
        """Messages from one rank to another, of one of the two: coalesced ones hide their own sizes."""
        rows, none = array_of(ends, "row"), nowhere(len(ends))
        apart_ns = np.diff(self.end_ns[rows], prepend=-np.inf, append=np.inf)
        near_ns = np.maximum(np.minimum(apart_ns[1:], apart_ns[:-1]) / 2, BIN_NS)
        tells = array_of(ends, "has_one_peer")
        return CallList(self.end_ns[rows], none, self.step[rows], none, tells, near_ns, are_messages=True)

    def collectives(self, rows: np.ndarray, cut: frozenset[int]) -> pd.DataFrame:
        """Instances of the group of these calls.

        Of a group of which some ranks have no trace those that have one, from two on: `why` says that the instances
        lack a rank.
        """
        expected = self._group_of(rows)
        here = (expected or frozenset()) & self.present
        is_partial = len(here) > 1 and here != expected
        table = self.aligned(rows, here if is_partial else expected, cut if len(here - cut) > 1 else frozenset())
        if is_partial:
            self.why[rows] = RANK_MISSING
        return table

    def _group_of(self, rows: np.ndarray) -> frozenset[int] | None:
        """Global ranks of the calls' group; `None` when the trace does not tell.

        The list in a trace may be cut short (`0, 1, ..., 1023`): then those that use the group, if all are there. Where
        not even the group's size is known, they are the ranks that use it.
        """
        call = self.calls.iloc[rows[0]]
        if members := numbers(call["group_ranks"]):
            return frozenset(members)
        if pd.isna(call["group"]):
            return self.present
        found = frozenset(self.rank[rows].tolist())
        # Nsight Systems names the communicator, and its size only when it is made in the capture.
        is_whole = len(found) > 1 if pd.isna(call["group_size"]) else len(found) == call["group_size"]
        return found if is_whole else None

    def aligned(
        self, rows: np.ndarray, expected: frozenset[int] | None, cut: frozenset[int] = frozenset()
    ) -> pd.DataFrame:
        """Instances of the calls in `rows` over the ranks of their group, those in `cut` as far as they have them.

        Every rank is aligned with the one that has most calls; the weakest way in which a member was found speaks for
        the instance.
        """
        if (self.launched_ns[rows] != NONE).all():  # on all ranks alike, whatever streams they run on
            rows = rows[np.lexsort((self.start_ns[rows], self.launched_ns[rows]))]
        by_rank = {int(self.rank[rows[own[0]]]): rows[own] for own in rows_of_each(self.rank[rows])}
        if expected is None or not expected <= self.present:
            self.why[rows] = GROUP_UNKNOWN if expected is None else RANK_MISSING
            return _members()
        self.why[rows] = NOT_ON_ALL if len(expected) > 1 else OF_ONE_RANK
        wanted = sorted(expected - cut)
        if len(expected) < 2 or not {*wanted} <= {*by_rank}:
            return _members()
        reference = max(wanted, key=lambda rank: len(by_rank[rank]))
        others = [rank for rank in by_rank if rank in expected and rank != reference]
        own = by_rank[reference]
        partners = np.full((len(own), 1 + len(others)), NONE, dtype=np.int64)
        partners[:, 0] = own
        method, is_ambiguous, calls = np.zeros(len(own), dtype=np.int64), False, self.list_of(own)
        for column, rank in enumerate(others, start=1):
            found = align(calls, self.list_of(by_rank[rank]))
            partners[found.left, column] = by_rank[rank][found.right]
            method[found.left] = np.maximum(method[found.left], found.method)
            is_ambiguous |= found.is_ambiguous
        is_wanted = np.array([True, *(rank not in cut for rank in others)])
        held = (partners[:, is_wanted] != NONE).all(axis=1)
        members, method = partners[held], method[held]
        is_here = members != NONE
        is_whole = is_here.all(axis=1) & (cut & expected <= {*by_rank})
        reasons = np.array([RANK_CUT, None], dtype=object)
        self.why[members[is_here]] = np.repeat(reasons[is_whole.astype(np.int64)], is_here.sum(axis=1))
        instance = np.nonzero(is_here)[0]
        return _members(members[is_here], instance, method[instance], is_ambiguous=is_ambiguous)

    def is_of_one_clock(self, instances: pd.DataFrame) -> bool:
        """Whether ranks of one file, whose clock is one, end calls that are matched as one collective at one moment.

        Where they do not, calls of several groups that look alike were matched as one, and are dropped. Collectives
        of one root do not end together: those of one process, as `nn.DataParallel` makes them, are taken as they come.
        """
        held = instances[self.synchronises[instances["row"]]]
        if held.empty:
            return True
        file, rank = self.calls["file"].to_numpy()[held["row"]], self.rank[held["row"]]
        end_ns = pd.Series(self.end_ns[held["row"]])
        apart_ns = end_ns - end_ns.groupby([held["instance"].to_numpy(), file]).transform("first")
        spread = apart_ns.groupby([file, rank]).median().groupby(level=0).agg(np.ptp)
        is_one = bool(spread.max() <= LEAST_UNCERTAINTY_NS)
        if not is_one:
            self.why[instances["row"]] = GROUP_UNKNOWN
        return is_one

    def inferred(self, rows: np.ndarray) -> Iterator[pd.DataFrame]:
        """Instances of groups that no call names, for each library and size that kernels' names tell.

        Possible are the whole job, and the groups that the ranks' files list or their other calls name. Taken is the
        choice of which most calls match, to ends that scatter least; none where several fit equally well. What ends
        together on all ranks does so in each part of them: of those that fit alike the largest groups speak, and where
        a larger one has a rank without a trace it may be that one. `matched_by` says that it is inferred.
        """
        world = self.calls["world_size"].max()
        whole = self.present if pd.isna(world) else frozenset(range(int(world)))
        held = self.calls.iloc[rows]
        sizes, listed = held["group_size"].fillna(0).to_numpy(), _partitions(self.calls) if len(rows) else []
        for (_, size), own in pd.Series(rows).groupby([held["library"].to_numpy(), sizes], dropna=False):
            choices = [each for each in ((whole,), *listed) if size in (0, len(each[0]))]
            tried = [self._attempt(own.to_numpy(), partition) for partition in dict.fromkeys(choices or [()])]
            most = max(len(one.members) for one in tried)
            rivals = [one for one in tried if len(one.members) >= MOST * most]
            least = min(one.scatter_ns for one in rivals)
            alike = [one for one in rivals if one.scatter_ns <= max(2 * least, least + 1_000)]
            largest = max(one.size for one in alike)
            untried = [one for one in tried if one.size > largest and (one.why == RANK_MISSING).any()]
            found = untried or [one for one in alike if one.size == largest]
            self.why[own] = found[0].why if len(found) == 1 else GROUP_UNKNOWN
            members = found[0].members if len(found) == 1 else _members()
            yield members.assign(matched_by=members["matched_by"] + len(METHODS))

    def _attempt(self, rows: np.ndarray, partition: Partition) -> "_Attempt":
        """The calls in `rows` matched within the groups; those of no group have no partner."""
        self.why[rows] = GROUP_UNKNOWN
        members = _joined(self.aligned(rows[np.isin(self.rank[rows], [*group])], group) for group in partition)
        # How far ends of one instance are from each other, clocks aside.
        lead = members.groupby("instance")["row"].transform("first").to_numpy()
        apart = pd.Series(self.end_ns[members["row"]] - self.end_ns[lead])
        residual = apart - apart.groupby([self.rank[lead], self.rank[members["row"]]]).transform("median")
        others = residual[self.rank[lead] != self.rank[members["row"]]].abs()
        scatter_ns = float(others.median()) if len(others) else 0.0
        return _Attempt(len(partition[0]) if partition else 0, members, self.why[rows], scatter_ns)

    def messages(self, rows: np.ndarray, scope: np.ndarray) -> pd.DataFrame:
        """An instance for every two calls that exchange messages, in order for each sender and receiver."""
        self.why[rows] = NO_PEER
        ends = messages_of(self.calls[["rank", "group_ranks", "peers"]].iloc[rows].assign(row=rows, scope=scope[rows]))
        is_own = ends["rank"] == ends["peer"]
        self.why[ends.loc[is_own, "row"]] = TO_ITSELF
        ends = ends[~is_own]
        if ends.empty:
            return _members()
        self.why[ends["row"]] = NOT_ON_ALL
        self.why[ends.loc[~ends["peer"].isin(self.present), "row"]] = RANK_MISSING
        ends = ends.assign(
            source=ends["rank"].where(ends["is_send"], ends["peer"]),
            target=ends["peer"].where(ends["is_send"], ends["rank"]),
            # The end of a call with other peers beside is that of its last message: it tells nothing of this one.
            has_one_peer=ends["peer"].groupby(ends["row"]).transform("nunique") == 1,
        )
        tables = []
        for _, part in ends.groupby(["scope", "source", "target"], sort=False):
            sent, received = part[part["is_send"]], part[~part["is_send"]]
            found = align(self.messages_in(sent), self.messages_in(received))
            both = np.stack([array_of(sent, "row")[found.left], array_of(received, "row")[found.right]], axis=1)
            pairs = pd.DataFrame(np.sort(both, axis=1), columns=["one", "other"])
            tables.append(pairs.assign(matched_by=found.method, is_ambiguous=found.is_ambiguous))
        # A call may send to and receive from the same peer: that is one instance.
        pairs = pd.concat(tables).drop_duplicates(["one", "other"], ignore_index=True)
        members = pairs[["one", "other"]].to_numpy().ravel()
        self.why[members] = None
        twice = pairs.loc[pairs.index.repeat(2)]
        matched_by, is_ambiguous = arrays_of(twice, "matched_by", "is_ambiguous")
        return _members(members, twice.index, matched_by, is_ambiguous=is_ambiguous)


class _Attempt(Struct, frozen=True):
    """What comes of taking calls for those of groups of some size: how many match, and how far their ends scatter."""

    size: int
    members: pd.DataFrame
    why: np.ndarray
    scatter_ns: float


def _partitions(calls: pd.DataFrame) -> list[Partition]:
    """Groups of two ranks and more of one shape, of which no rank is in two, as files list them and calls name them.

    A list that is cut, or damaged, tells no group.
    """
    shapes: dict[tuple[int, ...], set[frozenset[int]]] = {}
    listed = ";".join(calls["listed_groups"].dropna().unique())
    for text in [*calls["group_ranks"].dropna().unique(), *listed.split(";")]:
        if len(group := frozenset(numbers(text))) > 1:
            shapes.setdefault(tuple(rank - min(group) for rank in sorted(group)), set()).add(group)
    found = [tuple(sorted(groups, key=sorted)) for groups in shapes.values()]
    return [groups for groups in found if sum(map(len, groups)) == len(frozenset().union(*groups))]
