"""Which calls of all ranks are one collective, or the two ends of one message."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer import kinds
from traceanalyzer.analyses.grouping import Groups, number_in_group, rows_of_each
from traceanalyzer.meaning.columns import numbers
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    picked,
    rows_where,
    table_of,
    under_each_other,
    whole_of,
    with_columns,
)


def equal_keys(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Pairs of positions whose key, and position among equal keys, are the same, in order of the left ones."""
    width, keys = max(len(left), len(right), 1), np.unique(np.concatenate([left, right]))
    codes = [np.searchsorted(keys, side) * width + number_in_group(side) for side in (left, right)]
    _, first, second = np.intersect1d(*codes, return_indices=True)
    pairs = np.stack([first, second], axis=1).astype(np.int64)
    return pairs[np.argsort(first, kind="stable")]


BIN_NS = 50_000
"""Width of a bin of differences."""

AMBIGUOUS_SHARE = 0.9
"""A runner-up with this share of the winner's votes makes the vote ambiguous."""

_PEAK_NS = BIN_NS // 5
"""From one call to the next its ends differ on two ranks by less, but for some."""

_MOST_PAIRS = 1_000_000


class Vote(Struct, frozen=True):
    """Outcome of a vote.

    Attributes:
        offset_ns: median difference (left end − right end) of the pairs in the winning bin; where these are more than
            each call once, for calls come closer than a bin is wide, of those where they lie densest there.
        votes: pairs in it.
        voters: calls of the side with fewer voters: the most that a bin of true pairs can hold.
        width_ns: of a bin.
        is_ambiguous: another bin has 90 % of the winner's votes.
    """

    offset_ns: int
    votes: int
    voters: int
    width_ns: int
    is_ambiguous: bool


def vote(left: "CallList", right: "CallList", width_ns: int) -> Vote | None:
    """The offset of two ranks' synchronising calls; `None` where no pair is compatible, or too few agree on any.

    Bins begin at every half of their width, so that a cluster at a bin's edge is not split in two. Beyond a million
    pairs an even sample of the left calls votes, which keeps the cost near-linear.
    """
    sides = [(side.end_ns[side.is_synchronising], side.signature[side.is_synchronising]) for side in (left, right)]
    (ends, signatures), (others, other_signatures) = sides
    rows, cols = _compatible_pairs(signatures, other_signatures)
    if not len(rows):
        return None
    differences = ends[rows] - others[cols]
    half_ns = width_ns // 2
    held, count = np.unique(differences // half_ns, return_counts=True)
    bins, place = np.unique(np.concatenate([held - 1, held]), return_inverse=True)
    counts = np.bincount(place, np.tile(count, 2))
    winner = bins[np.argmax(counts)]
    start = winner * half_ns
    agreeing = differences[(differences >= start) & (differences < start + 2 * half_ns)]
    voters = min(len(np.unique(rows)), len(np.unique(cols)))
    if len(agreeing) < max(_LEAST_SHARE * voters, min(_LEAST_VOTES, voters)):
        return None
    near = differences[(differences >= start - half_ns) & (differences < start + 3 * half_ns)]
    return Vote(
        offset_ns=int(np.median(agreeing if len(agreeing) <= voters else _densest(near, _PEAK_NS))),
        votes=len(agreeing),
        voters=voters,
        width_ns=width_ns,
        is_ambiguous=bool(counts[np.abs(bins - winner) > 3].max(initial=0) >= AMBIGUOUS_SHARE * len(agreeing)),
    )


def _densest(differences: np.ndarray, width_ns: int) -> np.ndarray:
    """Those that most others are near to: true pairs agree closely, pairs with the call before or behind scatter."""
    ordered = np.sort(differences)
    count = np.searchsorted(ordered, ordered + width_ns, side="right") - np.arange(len(ordered))
    first = int(count.argmax())
    return ordered[first : first + int(count[first])]


def _compatible_pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions (left, right) of all pairs with equal signatures, an even sample of the left ones if many."""
    order = np.argsort(right, kind="stable")
    first = np.searchsorted(right[order], left, side="left")
    partners = np.searchsorted(right[order], left, side="right") - first
    voters = np.flatnonzero(partners)
    stride = -(-int(partners.sum()) // _MOST_PAIRS)
    voters = voters[:: max(stride, 1)]
    partners = partners[voters]
    begins = np.cumsum(partners) - partners
    within = np.arange(int(partners.sum())) - np.repeat(begins, partners)
    return np.repeat(voters, partners), order[np.repeat(first[voters], partners) + within]


METHODS = ("sequence", "step and position", "offset", "order between others")
"""How a pair is found, surest first."""

BY_SEQUENCE, BY_STEP, BY_TIME, BY_ORDER = range(len(METHODS))

_AGREEING = 0.9
"""Share of a block's calls that must end within a bin of the offset for the block to be verified."""

_MOST_DRIFT = 1e-4
"""Clocks that are further apart a second are no clocks: the candidates are wrong."""

_MORE = 1.1
"""Times the verified pairs, from which on the votes for another offset count for more."""

_LEAST_SHARE, _LEAST_VOTES = 0.25, 4
"""A vote decides nothing when fewer of the possible pairs agree: three of a dozen do so by chance."""


@dataclass(frozen=True, slots=True)
class CallList:
    """Calls of one rank in one group, in order of time; arrays of one length.

    Attributes:
        end_ns: ends, on the rank's own clock.
        signature: calls can only belong together when these are equal.
        step: step number, -1 for none.
        sequence: NCCL's sequence number, -1 for none.
        is_synchronising: its ends are the same moment on both ranks.
        near_ns: how far apart these may be: half of the shortest such call, which its neighbours are not as near as,
            and a bin at least. Ends of large all-reduces beside compute were seen 160 µs off the clocks' offset.
        may_end_early: sends, which may end long before their receives do: NCCL buffers them (seen up to 25 MB).
    """

    end_ns: np.ndarray
    signature: np.ndarray
    step: np.ndarray
    sequence: np.ndarray
    is_synchronising: np.ndarray
    near_ns: np.ndarray
    may_end_early: bool = False

    def __len__(self) -> int:
        return len(self.end_ns)


def are_enough(is_verified: np.ndarray) -> bool:
    """Whether at least half of the candidates are verified."""
    return bool(is_verified.any() and 2 * is_verified.sum() >= len(is_verified))


def is_refuted(left: CallList, right: CallList, is_verified: np.ndarray, offset_ns: int | None) -> bool:
    """Whether far more calls agree on another offset than steps of one number are verified.

    A rank whose numbers are one higher looks right where all steps are as long: the one that is not tells.
    """
    if is_verified.all() or not are_enough(is_verified) or offset_ns is None:
        return False
    decided = voted(left, right)
    if decided is None or decided.is_ambiguous or abs(decided.offset_ns - offset_ns) <= decided.width_ns:
        return False
    return decided.votes > _MORE * int(is_verified.sum())


def without_drift(left: CallList, right: CallList, pairs: np.ndarray) -> CallList:
    """The left calls on a clock that runs as fast as the right one, if the candidates suggest a credible drift.

    Clocks of two hosts may drift apart by tens of µs a second, more than a bin in a long capture.
    """
    rows, cols = pairs[left.is_synchronising[pairs[:, 0]] & right.is_synchronising[pairs[:, 1]]].T
    third = len(rows) // 3
    if not third:
        return left
    ends = left.end_ns[rows]
    difference = ends - right.end_ns[cols]
    first, last = (slice(third), slice(-third, None))
    length = np.median(ends[last]) - np.median(ends[first])
    rate = (np.median(difference[last]) - np.median(difference[first])) / max(length, 1)
    if abs(rate) > _MOST_DRIFT:
        return left
    shift = np.round(rate * (left.end_ns - np.median(ends))).astype(np.int64)
    return replace(left, end_ns=left.end_ns - shift)


def candidates(left: CallList, right: CallList) -> tuple[np.ndarray, int]:
    """Pairs by sequence number, else by step and position, and how they were found."""
    if len(left) and len(right) and (left.sequence != NONE).all() and (right.sequence != NONE).all():
        return equal_keys(left.sequence, right.sequence), BY_SEQUENCE
    pairs = equal_keys(left.step, right.step)
    # Without ends that tell, calls outside steps are one more block.
    tells = left.is_synchronising.any() and right.is_synchronising.any()
    return pairs[left.step[pairs[:, 0]] != NONE] if tells else pairs, BY_STEP


def verified(
    left: CallList, right: CallList, pairs: np.ndarray, method: int, told_ns: int | None
) -> tuple[np.ndarray, int | None]:
    """Mask of the pairs whose whole step agrees in signatures and ends; their offset, `told_ns` where that is given.

    Positions in a step also need the same number of calls on both ranks, which sequence numbers do not. A step
    without synchronising calls is verified by signatures and number alone.
    """
    if not len(pairs):
        return np.zeros(0, dtype=bool), None
    rows, cols = pairs.T
    is_same = left.signature[rows] == right.signature[cols]
    synchronises = left.is_synchronising[rows] & right.is_synchronising[cols]
    difference = left.end_ns[rows] - right.end_ns[cols]
    offset_ns = _offset(left, right, difference[synchronises & is_same]) if told_ns is None else told_ns
    is_near = np.abs(difference - (offset_ns or 0)) <= np.minimum(left.near_ns[rows], right.near_ns[cols])
    fits = is_near | (difference < (offset_ns or 0)) if left.may_end_early else is_near
    steps, code = np.unique(left.step[rows], return_inverse=True)
    calls, near, fitting = (
        np.bincount(code[synchronises & mask], minlength=len(steps)) for mask in (np.True_, is_near, fits)
    )
    is_good = (fitting >= _AGREEING * calls) & (np.bincount(code[~is_same], minlength=len(steps)) == 0)
    if told_ns is None:
        # Were a send taken for the one before it, all would seem early: some have to end with their receives.
        is_good &= near >= _LEAST_SHARE * calls
    if method == BY_STEP:
        numbers = [np.searchsorted(steps, side.step[np.isin(side.step, steps)]) for side in (left, right)]
        is_good &= np.equal(*(np.bincount(number, minlength=len(steps)) for number in numbers))
    return is_good[code], offset_ns


def _offset(left: CallList, right: CallList, differences: np.ndarray) -> int | None:
    """Left clock minus right clock; early ends would shift the median, not the vote.

    Where steps are as long as each other a vote cannot tell them apart: most of the candidates can.
    """
    decided = voted(left, right) if left.may_end_early else None
    if decided is not None and not (decided.is_ambiguous and len(differences)):
        return decided.offset_ns
    if decided is not None:
        differences = _densest(differences, BIN_NS)
    return int(np.median(differences)) if len(differences) else None


def voted(left: CallList, right: CallList) -> Vote | None:
    """Offset by vote and whether it is ambiguous; `None` when too few pairs agree on any.

    Where bins of the usual width are hardly agreed on, in bins as wide as such calls' ends may be apart.
    """
    narrow = vote(left, right, BIN_NS)
    if narrow is not None and not narrow.is_ambiguous and 2 * narrow.votes >= narrow.voters:
        return narrow
    apart = [side.near_ns[side.is_synchronising] for side in (left, right)]
    width_ns = 2 * int(min(np.median(each) for each in apart)) if all(map(len, apart)) else 0
    wide = vote(left, right, width_ns) if width_ns > 2 * BIN_NS else None
    return narrow if wide is None or wide.is_ambiguous else wide


# Which calls of two ranks belong together, within one process group.
#
# First by NCCL's sequence number when both ranks have it, else by the step and the position in it. That is
# verified step by step; calls for which it fails are matched by the time of their ends, at the offset that the
# verified calls, else a vote, agree on.


LEAST_UNCERTAINTY_NS = 30_000
"""Ranks of one host, whose clock is the same, show medians of ends of up to 29 µs."""

_FAR_NS = 4 * BIN_NS
"""Ends of a synchronising call are not that far apart (in real captures mostly less than 110 µs), but for long ones,
which are near enough to be matched by time."""


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


def align(left: CallList, right: CallList, offset_ns: int | None = None) -> Alignment:
    """Match two ranks' calls; those without a partner are in no pair.

    `offset_ns` is that of the ranks' clocks where other calls of theirs told it.
    """
    if _are_apart(left, right):
        none = np.empty(0, dtype=np.int64)
        return Alignment(none, none, none, None)
    pairs, method = candidates(left, right)
    told_ns = offset_ns
    is_verified, offset_ns = verified(left, right, pairs, method, told_ns)
    if not are_enough(is_verified):
        steady = without_drift(left, right, pairs)
        is_verified_so, offset_so_ns = verified(steady, right, pairs, method, told_ns)
        if are_enough(is_verified_so):
            left, is_verified, offset_ns = steady, is_verified_so, offset_so_ns
    is_wrong = method == BY_STEP and told_ns is None and is_refuted(left, right, is_verified, offset_ns)
    pairs, is_ambiguous = pairs[is_verified], False
    if is_wrong or not are_enough(is_verified):
        # Without a decision what is verified stays, and nothing is added to it.
        decided = voted(left, right)
        if decided is None:
            offset_ns = None
        else:
            offset_ns, is_ambiguous, pairs = decided.offset_ns, decided.is_ambiguous, pairs[:0]
    methods = np.full(len(pairs), method, dtype=np.int64)
    for find, how in ((_nearest, BY_TIME), (_in_gaps, BY_ORDER)):
        if offset_ns is None:
            break
        found = np.concatenate([pairs, find(left, right, pairs, offset_ns)])
        methods = np.append(methods, np.full(len(found) - len(pairs), how, dtype=np.int64))
        order = np.argsort(found[:, 0], kind="stable")
        pairs, methods = found[order], methods[order]
    return Alignment(pairs[:, 0], pairs[:, 1], methods, offset_ns, is_ambiguous)


def _are_apart(left: CallList, right: CallList) -> bool:
    """Whether the ranks were recorded one after the other: no step in common, no moment, no sequence that tells."""
    steps, others = (side.step[side.step != NONE] for side in (left, right))
    if not len(steps) or not len(others) or np.isin(steps, others).any():
        return False
    if (left.sequence != NONE).all() and (right.sequence != NONE).all():
        return False
    return bool(left.end_ns.min() > right.end_ns.max() or right.end_ns.min() > left.end_ns.max())


def _nearest(left: CallList, right: CallList, pairs: np.ndarray, offset_ns: int) -> np.ndarray:
    """Synchronising calls that are each other's nearest in time, as near as ends are, and compatible.

    They keep the order of the given pairs: a group's calls run in the same order on all ranks.
    """
    rows, cols = (_left_over(side, pairs[:, column]) for column, side in enumerate((left, right)))
    rows, cols = rows[left.is_synchronising[rows]], cols[right.is_synchronising[cols]]
    if not len(rows) or not len(cols):
        return np.empty((0, 2), dtype=np.int64)
    ends, others = left.end_ns[rows] - offset_ns, right.end_ns[cols]
    there, back = _closest(ends, others), _closest(others, ends)
    is_pair = (back[there] == np.arange(len(rows))) & (left.signature[rows] == right.signature[cols[there]])
    is_pair &= np.abs(ends - others[there]) <= np.minimum(left.near_ns[rows], right.near_ns[cols[there]])
    rows, cols = rows[is_pair], cols[there][is_pair]
    gaps = [np.searchsorted(np.sort(pairs[:, column]), side) for column, side in enumerate((rows, cols))]
    return np.stack([rows, cols], axis=1)[gaps[0] == gaps[1]]


def _left_over(side: CallList, taken: np.ndarray) -> np.ndarray:
    is_free = np.ones(len(side), dtype=bool)
    is_free[taken] = False
    return np.flatnonzero(is_free)


def _closest(times: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Position in `others` of the nearest to each time; ends are nearly sorted, so sort first."""
    order = np.argsort(others, kind="stable")
    ordered = others[order]
    after = np.minimum(np.searchsorted(ordered, times), len(ordered) - 1)
    before = np.maximum(after - 1, 0)
    is_before_nearer = np.abs(times - ordered[before]) <= np.abs(ordered[after] - times)
    return order[np.where(is_before_nearer, before, after)]


def _in_gaps(left: CallList, right: CallList, pairs: np.ndarray, offset_ns: int) -> np.ndarray:
    """Calls between two matched ones, when both ranks have the same ones there.

    Ends of those that synchronise must still be near: each rank may have lost another call of the gap. A send that
    may end early must not end later than its receive.
    """
    if len(pairs) < 2:
        return np.empty((0, 2), dtype=np.int64)
    free = [_left_over(side, pairs[:, column]) for column, side in enumerate((left, right))]
    gaps = [np.searchsorted(np.sort(pairs[:, column]), rows) for column, rows in enumerate(free)]
    between = [(gap > 0) & (gap < len(pairs)) for gap in gaps]
    free, gaps = ([part[mask] for part, mask in zip(side, between, strict=True)] for side in (free, gaps))
    inside = equal_keys(gaps[0], gaps[1])
    found = np.stack([free[0][inside[:, 0]], free[1][inside[:, 1]]], axis=1)
    gap = gaps[0][inside[:, 0]]
    later_ns = left.end_ns[found[:, 0]] - right.end_ns[found[:, 1]] - offset_ns
    is_far = (later_ns if left.may_end_early else np.abs(later_ns)) > _FAR_NS
    is_far &= left.is_synchronising[found[:, 0]] & right.is_synchronising[found[:, 1]]
    differing = is_far | (left.signature[found[:, 0]] != right.signature[found[:, 1]])
    counts = [np.bincount(side, minlength=len(pairs)) for side in gaps]
    is_bad = (counts[0] != counts[1]) | (np.bincount(gap[differing], minlength=len(pairs)) > 0)
    kept: np.ndarray = found[~is_bad[gap]]
    return kept


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


class CallLists:
    """Columns of the calls as arrays, from which a `CallList` of some rows is taken."""

    def __init__(self, calls: pd.DataFrame) -> None:
        self.rank, self.start_ns, self.end_ns = (array_of(calls, name) for name in ("rank", "start_ns", "end_ns"))
        self._step, self._sequence = (whole_of(calls, name) for name in ("step", "sequence"))
        self._signature = _signatures(calls)
        self._dtype = pd.factorize(calls["dtype"])[0]
        self._synchronises = synchronises(calls)

    def of(self, rows: np.ndarray) -> CallList:
        """Calls of one rank in one group."""
        own = Groups.of_numbers(self._signature[rows])
        shortest = own.smallest(self.end_ns[rows] - self.start_ns[rows])[own.of_row]
        return CallList(
            self.end_ns[rows],
            self._signature[rows],
            self._step[rows],
            self._sequence[rows],
            self._synchronises[rows],
            np.maximum(shortest // 2, BIN_NS),
        )

    def of_messages(self, ends: pd.DataFrame, *, are_sends: bool) -> CallList:
        """Messages between two ranks: both ends are mostly the same moment; coalesced ones hide their own sizes."""
        rows = array_of(ends, "row")
        return CallList(
            self.end_ns[rows],
            self._dtype[rows],
            self._step[rows],
            np.full(len(rows), NONE),
            array_of(ends, "has_one_peer"),
            np.full(len(rows), BIN_NS),
            are_sends,
        )


def synchronises(calls: pd.DataFrame) -> np.ndarray:
    """Collectives whose ranks all wait for each other: neither rooted, nor all-to-alls that are or may be uneven."""
    is_uneven = calls["is_uneven"].fillna(value=(calls["collective"] == "all_to_all")).to_numpy(dtype=bool)
    is_alike: np.ndarray = ~calls["collective"].isin(NOT_WAITING_ALIKE).to_numpy() & ~is_uneven
    return is_alike


def is_peer_copy(calls: pd.DataFrame) -> np.ndarray:
    """Peer-to-peer copies, those too that carry out a collective of the operator that launched them."""
    is_copy = calls["collective"] == "peer_copy"
    mask: np.ndarray = (is_copy | (calls["activity"] == "memcpy") if "activity" in calls else is_copy).to_numpy()
    return mask


def moves_only(calls: pd.DataFrame) -> np.ndarray:
    """Copies between GPUs, and kernels that send without waiting for anybody."""
    mask: np.ndarray = is_peer_copy(calls) | (waits_of(calls) == kinds.NEVER).to_numpy()
    return mask


def sizes_from(arguments: Iterable[str]) -> str | None:
    """What else than their own arguments tells the sizes of some calls; `None` where nothing does."""
    found = sorted(set(arguments) - {"kernel", "host"})
    return ", ".join(found) or None


SIZES_FROM = (
    "Where the sizes of some of the calls are not their own: operator (the dimensions of the one that launched them), "
    "inferred (from a later step), or host, size inferred (by who calls the communicator); absent where all are."
)


def waits_of(calls: pd.DataFrame) -> pd.Series:
    """What each call's duration holds by its kernel: `only` waiting, waiting for `peers` too, `no` waiting; else NA."""
    return pd.Series(told_of_kernels(calls, lambda kernel: kernel and kernel.waits), index=calls.index, dtype="object")


def told_of_kernels(calls: pd.DataFrame, tell: Callable[[kinds.CommKernel | None], Any]) -> np.ndarray:
    """What is told of each call's kernel, which is looked up once for each name."""
    codes, names = pd.factorize(calls["name"].array, use_na_sentinel=False)
    told: np.ndarray = np.array([tell(kinds.comm_kernel(str(name))) for name in names], dtype=object)[codes]
    return told


def _signatures(calls: pd.DataFrame) -> np.ndarray:
    """Equal for calls that can be one collective: operation, dtype and sizes, else kernel and grid.

    Ranks of an all-to-all may send different sizes.
    """
    columns = columns_of(calls)
    sizes = calls["size_bytes"].to_numpy(dtype=np.int64, na_value=NONE)
    sizes = np.where((calls["collective"] == "all_to_all").to_numpy(), NONE, sizes)
    of_names, names = columns | {"size_bytes": sizes}, (("collective", "dtype", "size_bytes"), ("name", "grid"))
    arguments, kernel = (Groups.of(of_names, own, with_absent=True).of_row for own in names)
    return np.where(calls["group"].isna().to_numpy(), len(calls) + kernel, arguments)


def match_messages(
    calls: pd.DataFrame, lists: CallLists, rows: np.ndarray, scope: np.ndarray, present: frozenset[int], why: np.ndarray
) -> pd.DataFrame:
    """An instance for every two calls that exchange messages, in order for each sender and receiver."""
    if not len(rows):
        return no_members()
    why[rows] = NO_PEER
    ends = messages_of(calls[["rank", "group_ranks", "peers"]].iloc[rows].assign(row=rows, scope=scope[rows]))
    why[ends.loc[ends["rank"] == ends["peer"], "row"].to_numpy()] = TO_ITSELF
    ends = ends[ends["rank"] != ends["peer"]]
    if ends.empty:
        return no_members()
    why[array_of(ends, "row")] = NOT_ON_ALL
    why[ends.loc[~ends["rank"].isin(present) | ~ends["peer"].isin(present), "row"].to_numpy()] = RANK_MISSING
    ends = ends.assign(
        source=ends["rank"].where(ends["is_send"], ends["peer"]),
        target=ends["peer"].where(ends["is_send"], ends["rank"]),
        # The end of a call with other peers beside is that of its last message: it tells nothing of this one.
        has_one_peer=ends["peer"].groupby(ends["row"]).transform("nunique") == 1,
    )
    # A call may send to and receive from the same peer: that is one instance.
    pairs = under_each_other(_channels(lists, ends))
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


def messages_of(calls: pd.DataFrame) -> pd.DataFrame:
    """A row for each message of the calls that name peers: `is_send`, and the global rank of its `peer`.

    A peer is a position in its process group; without the group's ranks it is taken for the global rank.
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
    is_listed = peer < len(ranks) and ranks[peer].strip().isdigit()
    return int(ranks[peer]) if is_listed else peer


def _channels(lists: CallLists, ends: pd.DataFrame) -> list[pd.DataFrame]:
    """The pairs of each sender and receiver: rows `left` (sender's call) and `right`, in order of the messages.

    Where NCCL buffers most messages of one direction, few of its sends end with their receives and tell nothing of the
    clocks: those are aligned by what the other direction tells.
    """
    rows: dict[Any, list[np.ndarray]] = {}
    sides: dict[Any, tuple[CallList, CallList]] = {}
    for key, part in ends.groupby(["scope", "source", "target"], sort=False):
        sends, receives = (part[part["is_send"] == is_send] for is_send in (True, False))
        rows[key] = [array_of(side, "row") for side in (sends, receives)]
        sides[key] = lists.of_messages(sends, are_sends=True), lists.of_messages(receives, are_sends=False)
    found = {key: align(*own) for key, own in sides.items()}
    for (scope, source, target), own in sides.items():
        one, back = found[scope, source, target], found.get((scope, target, source))
        if back is not None and back.offset_ns is not None and len(one.left) < min(map(len, own)):
            found[scope, source, target] = max(one, align(*own, -back.offset_ns), key=lambda each: len(each.left))
    return [
        table_of(
            {
                "left": rows[key][0][each.left],
                "right": rows[key][1][each.right],
                "matched_by": each.method,
                "is_ambiguous": each.is_ambiguous,
            }
        )
        for key, each in found.items()
    ]


def no_members() -> pd.DataFrame:
    """An empty table of members."""
    return pd.DataFrame({"row": [], "instance": [], "matched_by": []}, dtype=np.int64).assign(is_ambiguous=False)


_ONE_TO_ONE = ("rma", "unknown", "send", "recv")

"""A whole list: one that is cut, or damaged, tells no group."""

Partition = tuple[frozenset[int], ...]
"""Groups of one size of which no rank is in two; none where the groups are not known."""

_MOST = 0.9
"""Share of the calls that the best partition matches, from which on another one is a rival."""

_ALIKE, _LEAST_NS = 2, 1_000
"""Ends of one group's calls that scatter no more than twice as far as another's, or by a microsecond more, fit both."""


def spinning_without_group(calls: pd.DataFrame, mask: np.ndarray) -> np.ndarray:
    """Rows within `mask` of kernels that wait for ranks of a group: neither one-sided ones nor signals.

    Kernels that send and receive at once, one after the other around a ring, are among them.
    """
    if not mask.any():
        return np.flatnonzero(mask)
    held = calls[mask]
    is_spinning = waits_of(held).isin((kinds.PEERS, kinds.WAIT_ONLY)).to_numpy()
    is_of_pair = held["collective"].isin(_ONE_TO_ONE).to_numpy()
    is_signal = held["name"].astype("str").str.contains("_signal").to_numpy()
    is_message = (held["collective"] == "send_recv").to_numpy()
    is_known = ~is_message | never_names_group(held)
    rows: np.ndarray = np.flatnonzero(mask)[is_spinning & ~is_of_pair & ~is_signal & is_known]
    return rows


def is_ring(calls: pd.DataFrame) -> np.ndarray:
    """Calls that send to one rank of a group and receive from another, which are the same in groups of two."""
    mask: np.ndarray = (calls["collective"] == "send_recv").to_numpy() & never_names_group(calls)
    return mask


def never_names_group(calls: pd.DataFrame) -> np.ndarray:
    """Calls of kernels that are launched by no host call with arguments: those of NCCL's rivals."""
    return told_of_kernels(calls, lambda kernel: kernel is not None and kernel.sizes != kinds.CALL).astype(bool)


def possible_groups(
    calls: pd.DataFrame, rows: np.ndarray, present: frozenset[int]
) -> Iterator[tuple[np.ndarray, list[Partition]]]:
    """The rows by library and by the group's size that their names tell, each with the groups that may be theirs.

    Those are the whole job, and the groups that the ranks' files list or their other calls name.
    """
    held = calls.iloc[rows].reset_index(drop=True)
    world = calls["world_size"].max() if "world_size" in calls else pd.NA
    job = present if pd.isna(world) else frozenset(range(int(world)))
    library = pd.factorize(told_of_kernels(held, lambda kernel: kernel and kernel.library))[0]
    listed = _partitions(calls) if len(rows) else []
    for (_, size), own in held.groupby([library, held["group_size"].fillna(0)]).indices.items():
        users = frozenset(held["rank"].iloc[own])
        fitting = [groups for groups in listed if not size or len(groups[0]) == size]
        covering = [groups for groups in fitting if users <= frozenset().union(*groups)]
        whole = [(job,)] if size in (0, len(job)) else []
        choices = list(dict.fromkeys([*whole, *(covering or ([] if whole else fitting))]))
        yield rows[own], choices or [()]


def _partitions(calls: pd.DataFrame) -> list[Partition]:
    """Groups of two ranks and more, put together by size and by what the ranks' files call them, or by their shape.

    A list that is cut, or damaged, tells no group; of one size no rank is in two.
    """
    named = calls[["group_description", "group_ranks"]] if "group_description" in calls else calls[["group_ranks"]]
    texts = [tuple(row) for row in named.dropna(subset="group_ranks").drop_duplicates().itertuples(index=False)]
    for text in calls["listed_groups"].dropna().unique() if "listed_groups" in calls else ():
        texts += [tuple(part.split("=", 1)) for part in text.split(";") if part]
    families: dict[tuple[object, int], set[frozenset[int]]] = {}
    for *description, ranks in texts:
        if len(group := frozenset(numbers(ranks))) > 1:
            shape = tuple(rank - min(group) for rank in sorted(group))
            for name in dict.fromkeys([None, shape, *description]):
                families.setdefault((name, len(group)), set()).add(group)
    found = dict.fromkeys(tuple(sorted(groups, key=sorted)) for groups in families.values())
    return [groups for groups in found if sum(map(len, groups)) == len(frozenset().union(*groups))]


class Attempt(Struct, frozen=True):
    """What comes of taking calls for those of groups of some size: how many match, and how far their ends scatter."""

    size: int
    members: pd.DataFrame
    why: np.ndarray
    scatter_ns: float


def decided(attempts: list[Attempt]) -> Attempt | None:
    """The attempt of which most calls match, to ends that scatter least; `None` where groups fit equally well.

    What ends together on all ranks does so in each part of them: of those that fit alike the largest groups speak, and
    where a larger one has a rank without a trace it may be that one.
    """
    most = max(len(one.members) for one in attempts)
    rivals = [one for one in attempts if len(one.members) >= _MOST * most]
    least = min(one.scatter_ns for one in rivals)
    alike = [one for one in rivals if one.scatter_ns <= max(_ALIKE * least, least + _LEAST_NS)]
    largest = max(one.size for one in alike)
    untried = [one for one in attempts if one.size > largest and (one.why == RANK_MISSING).any()]
    found = untried or [one for one in alike if one.size == largest]
    return found[0] if len(found) == 1 else None


def scatter_ns(members: pd.DataFrame, ranks: np.ndarray, ends_ns: np.ndarray) -> float:
    """How far the ends of one instance are from each other, clocks aside: the median over all calls."""
    if members.empty:
        return 0.0
    rows = array_of(members, "row")
    table = table_of({"instance": array_of(members, "instance"), "rank": ranks[rows], "end_ns": ends_ns[rows]})
    of_instance = table.groupby("instance")
    lead = of_instance["rank"].transform("first")
    apart = table["end_ns"] - of_instance["end_ns"].transform("first")
    residual = apart - apart.groupby([lead, table["rank"]]).transform("median")
    others = residual[(table["rank"] != lead).to_numpy()]
    return float(others.abs().median()) if len(others) else 0.0


class Matching(Struct, frozen=True):
    """Outcome for a table of calls.

    Attributes:
        members: a row for each call in each instance that it is part of: `row` (position in the table),
            `instance` (numbered by its first start), `matched_by`, `is_ambiguous`.
        why_unmatched: for every call why it is in none, or in one that lacks a rank; `None` for all others.
    """

    members: pd.DataFrame
    why_unmatched: np.ndarray


INFERRED_METHODS = (*METHODS, *(f"{method}; group inferred" for method in METHODS))
"""Of calls that name no group the ranks that run them in the same order, to ends that fit, are one group."""


def match(calls: pd.DataFrame, ranks: Iterable[int], cut: frozenset[int] = frozenset()) -> Matching:
    """Match the calls of all ranks, in order of time within a rank; `ranks` are those that have a trace.

    Of the ranks in `cut` the files end before the others': what they lack is a call of the others all the same.
    Kernels that spin on peers but name no group are matched over all ranks of the job, or over those groups that the
    ranks' files list or other calls name: where their order and ends agree best.
    """
    present = frozenset(ranks)
    why = np.full(len(calls), None, dtype=object)
    scope = _scopes(calls)
    is_message = calls["collective"].isin(kinds.POINT_TO_POINT).to_numpy()
    is_copy = is_peer_copy(calls)
    why[is_copy] = PEER_COPY
    why[(scope == NONE) & ~is_copy] = NO_ARGUMENTS
    lists = CallLists(calls)
    collective = np.flatnonzero((scope != NONE) & ~is_message & ~is_copy)
    tables = [_collectives(calls, lists, collective[own], present, cut, why) for own in rows_of_each(scope[collective])]
    if calls["group"].isna().all():
        tables = [table for table in tables if _is_of_one_clock(calls, table, why)]
    spinning = spinning_without_group(calls, (scope == NONE) & ~is_copy)
    tables += [
        _inferred(lists, rows, choices, present, why) for rows, choices in possible_groups(calls, spinning, present)
    ]
    messages = np.flatnonzero((scope != NONE) & is_message)
    tables.append(match_messages(calls, lists, messages, scope, present, why))
    return Matching(_numbered(calls, [table for table in tables if len(table)]), why)


def _scopes(calls: pd.DataFrame) -> np.ndarray:
    """Code of each call's process group (name and ranks); -1 where the trace does not say.

    Where it never does, on any call of any rank, all calls are taken for one group: ends decide. Not so kernels that
    never name one: their group is inferred.
    """
    held = ~calls["group"].array.isna()
    if not held.any():
        return np.where(never_names_group(calls), NONE, 0)
    key = calls["group"].astype("object").fillna("") + "\n" + calls["group_ranks"].astype("object").fillna("")
    return np.where(held, pd.factorize(key)[0], NONE)


def _collectives(
    calls: pd.DataFrame,
    lists: CallLists,
    rows: np.ndarray,
    present: frozenset[int],
    cut: frozenset[int],
    why: np.ndarray,
) -> pd.DataFrame:
    """Instances of one group: every rank is aligned with the one that has most calls.

    Of a group of which some ranks have no trace those that have one, from two on: `why` says that the instances lack a
    rank.
    """
    expected = group_members(calls.iloc[rows[0]], set(lists.rank[rows].tolist()), present)
    here = expected & present if expected is not None else frozenset[int]()
    cut = cut if len(here - cut) > 1 else frozenset()
    if expected == here or len(here) < 2:
        return _aligned(lists, rows, expected, present, why, cut)
    table = _aligned(lists, rows, here, present, why, cut)
    why[rows] = RANK_MISSING
    return table


def _is_of_one_clock(calls: pd.DataFrame, instances: pd.DataFrame, why: np.ndarray) -> bool:
    """Whether ranks of one file, whose clock is one, end calls that are taken for one collective at one moment.

    Where they do not, calls of several groups that look alike were taken for one: none is told. Collectives of one root
    do not end together: those of one process, as `nn.DataParallel` makes them, are taken as they come.
    """
    if instances.empty or "file" not in calls:
        return True
    rows = array_of(instances, "row")
    held = calls[["rank", "file", "end_ns"]].take(rows).assign(instance=array_of(instances, "instance"))
    held = held[~calls["collective"].take(rows).isin(NOT_WAITING_ALIKE).to_numpy()]
    if held.empty:
        return True
    first = held.groupby(["instance", "file"], observed=True)["end_ns"].transform("first")
    apart_ns = (held["end_ns"] - first).groupby([held["file"], held["rank"]], observed=True).median()
    spread = apart_ns.groupby("file", observed=True).agg(lambda apart: apart.max() - apart.min())
    if spread.max() <= LEAST_UNCERTAINTY_NS:
        return True
    why[rows] = GROUP_UNKNOWN
    return False


def _inferred(
    lists: CallLists, rows: np.ndarray, choices: list[Partition], present: frozenset[int], why: np.ndarray
) -> pd.DataFrame:
    """Instances of groups that no call names, of the choice that fits best; `matched_by` says so."""
    found = decided([_attempt(lists, rows, partition, present) for partition in choices])
    why[rows] = GROUP_UNKNOWN if found is None else found.why
    if found is None:
        return no_members()
    return found.members.assign(matched_by=found.members["matched_by"] + len(METHODS))


def _attempt(lists: CallLists, rows: np.ndarray, partition: Partition, present: frozenset[int]) -> Attempt:
    """The calls in `rows` matched within the groups; those of no group have no partner."""
    why = np.full(len(lists.rank), GROUP_UNKNOWN, dtype=object)
    tables: list[pd.DataFrame] = []
    count = 0
    for group in partition:
        table = _aligned(lists, rows[np.isin(lists.rank[rows], list(group))], group, present, why)
        tables.append(table.assign(instance=table["instance"] + count))
        count += len(table)
    members = under_each_other(tables) if tables else no_members()
    size = len(partition[0]) if partition else 0
    return Attempt(size, members, why[rows], scatter_ns(members, lists.rank, lists.end_ns))


def _aligned(
    lists: CallLists,
    rows: np.ndarray,
    expected: frozenset[int] | None,
    present: frozenset[int],
    why: np.ndarray,
    cut: frozenset[int] = frozenset(),
) -> pd.DataFrame:
    """Instances of the calls in `rows` over the ranks of their group, those in `cut` as far as they have them."""
    by_rank = {int(lists.rank[rows[own[0]]]): rows[own] for own in rows_of_each(lists.rank[rows])}
    if expected is None or not expected <= present:
        why[rows] = GROUP_UNKNOWN if expected is None else RANK_MISSING
        return no_members()
    why[rows] = NOT_ON_ALL if len(expected) > 1 else OF_ONE_RANK
    if len(expected) < 2 or not expected - cut <= set(by_rank):
        return no_members()
    reference = max(sorted(expected - cut), key=lambda rank: len(by_rank[rank]))
    others = (expected & set(by_rank)) - {reference}
    aligned = {rank: align(lists.of(by_rank[reference]), lists.of(by_rank[rank])) for rank in others}
    return _complete(by_rank, reference, aligned, why, cut & expected)


def group_members(call: pd.Series, holders: Iterable[int], present: frozenset[int]) -> frozenset[int] | None:
    """Global ranks of a call's group; `None` when the trace does not tell.

    The list in a trace may be cut short (`0, 1, ..., 1023`): then those that use the group, if all are there. Where
    not even the group's size is known, they are the ranks that use it.
    """
    if told := numbers(call["group_ranks"]):
        return frozenset(told)
    if pd.isna(call["group"]):
        return present
    size = call["group_size"]
    found = frozenset(holders)
    if pd.isna(size):  # Nsight Systems names the communicator, and its size only when it is made in the capture
        return found if len(found) > 1 else None
    return found if len(found) == size else None


def _complete(
    by_rank: dict[int, np.ndarray],
    reference: int,
    aligned: dict[int, Alignment],
    why: np.ndarray,
    cut: frozenset[int],
) -> pd.DataFrame:
    """The reference's calls that have a partner on every other rank, but for those whose files end before."""
    rows = by_rank[reference]
    partners = np.full((len(rows), len(aligned)), NONE, dtype=np.int64)
    method = np.zeros(len(rows), dtype=np.int64)
    for column, (rank, found) in enumerate(aligned.items()):
        partners[found.left, column] = by_rank[rank][found.right]
        # The weakest way in which a member was found speaks for the instance.
        method[found.left] = np.maximum(method[found.left], found.method)
    is_wanted = np.array([rank not in cut for rank in aligned], dtype=bool)
    held = np.flatnonzero((partners[:, is_wanted] != NONE).all(axis=1))
    members = np.concatenate([rows[held, None], partners[held]], axis=1)
    is_here = members != NONE
    is_whole = is_here.all(axis=1) & (cut <= set(by_rank))
    why[members[is_whole].ravel()] = None
    why[members[~is_whole][is_here[~is_whole]]] = RANK_CUT
    return table_of(
        {
            "row": members[is_here],
            "instance": np.nonzero(is_here)[0],
            "matched_by": np.repeat(method[held], is_here.sum(axis=1)),
            "is_ambiguous": any(found.is_ambiguous for found in aligned.values()),
        }
    )


def _numbered(calls: pd.DataFrame, tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The tables under each other, instances numbered over all of them by their first start."""
    if not tables:
        return no_members()
    bases = np.cumsum([0, *(int(table["instance"].max()) + 1 for table in tables)])
    members = under_each_other(tables)
    number = array_of(members, "instance") + np.repeat(bases[:-1], [len(table) for table in tables])
    instances = Groups.of_numbers(number)
    first = instances.smallest(array_of(calls, "start_ns")[members["row"]])[instances.of_row]
    order = np.lexsort((number, first))
    members = picked(members, order)
    methods = np.array(INFERRED_METHODS, dtype=object)[members["matched_by"]]
    return with_columns(members, instance=pd.factorize(number[order])[0], matched_by=pd.Series(methods))
