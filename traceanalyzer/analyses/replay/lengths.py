"""Edits of the graph: what changes make of the durations of its nodes and edges."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.collectives import at_most_ns, bus_factors
from traceanalyzer.analyses.grouping import Groups, number_in_group
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.replay.changes import (
    ALONE,
    EVEN,
    NOT_MADE,
    PEERS,
    USUAL,
    Change,
    with_waits_for_workers,
)
from traceanalyzer.analyses.replay.graph import MEMORY, NEVER, HostTiming, Nodes, Piece, Timing
from traceanalyzer.analyses.replay.job import Job, Lengths
from traceanalyzer.analyses.replay.peers import Made, Peers, more_calls, without_profiler
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.vocabulary import DATA
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, rows_named

_OF_CPU_WORK: Mapping[str, str] = MappingProxyType({"data": DATA.column, "memory": MEMORY})
"""Parts of the CPU work that can be changed alone: the columns that hold them."""

_OF_CPUS = ("cpu", "profiler", *_OF_CPU_WORK)

_OF_TRANSFERS = ("comm", "collective", "links", "small", "unmatched")


def keeps_waits(changes: Sequence[Change]) -> bool:
    """Whether calls still wait for their partners."""
    return all(change.part != "waits" for change in changes)


def concerning_each(ranks: Collection[int], changes: Sequence[Change]) -> Mapping[int, tuple[Change, ...]]:
    """The changes of what each rank does itself; two that do the same to it are equal, whatever other ranks they name.

    Ranks that no change names have the same ones.
    """
    named = frozenset[int]().union(*(change.ranks or () for change in changes))
    own = [change for change in changes if change.part != "waits"]

    def of(rank: int) -> tuple[Change, ...]:
        mine = (change for change in own if change.ranks is None or rank in change.ranks)
        return tuple(change if change.to == PEERS else _of_all(change) for change in mine)

    others = of(NONE)
    return {rank: of(rank) if rank in named else others for rank in ranks}


@lru_cache(1_024)
def _of_all(change: Change) -> Change:
    return replace(change, ranks=None)


class Edits:
    """The job's lengths after changes: the one place where a change becomes an edit of the graph."""

    def __init__(self, job: Job, peers: Peers) -> None:
        self.job, self.peers = job, peers

    def lengths(self, changes: Sequence[Change]) -> Lengths:
        """The recorded lengths with all these changes."""
        timing = {rank: self.timing(rank, own) for rank, own in concerning_each(self.job.nodes, changes).items()}
        return Lengths(timing, self.transfers(changes), keeps_waits(changes))

    def transfers(self, changes: Sequence[Change]) -> np.ndarray:
        """What follows once each matched call's partners are there."""
        return self._known(self._transfers, tuple(change for change in changes if change.part in _OF_TRANSFERS))

    def _transfers(self, changes: tuple[Change, ...]) -> np.ndarray:
        transfer = self.job.recorded.transfer_ns
        for change in changes:
            chosen = self._chosen_joins(change)
            transfer = np.where(chosen, _changed_transfers(self.job, transfer, change, chosen), transfer)
        return transfer

    def _known(self, make: Callable[..., Made], *asked: Any) -> Made:
        """What a method makes of this; many sets of changes, and both replays of one set, ask for the same."""
        return self.peers.known.get_or_make((make.__name__, *asked), lambda: make(*asked))

    def timing(self, rank: int, changes: Sequence[Change]) -> Timing:
        """What the rank's operations and CPU take after changes that concern it."""
        recorded = self.job.recorded.timing[rank]

        def part(is_of: Callable[[Change], bool], make: Callable[..., Made], unchanged: Made) -> Made:
            own = tuple(filter(is_of, changes))
            return self._known(make, rank, own) if own else unchanged

        host = part(_is_of_cpu_work, self._host, recorded.host)
        is_blocking, is_called = part(_is_of_calls, self._calls, (recorded.is_blocking, recorded.is_called))
        has_lag = all(change.part != "delays" for change in changes)
        durations = part(_is_of_durations, self._durations, recorded.duration_ns)
        return Timing(durations, host, is_blocking, is_called, has_lag)

    def _durations(self, rank: int, changes: Sequence[Change]) -> np.ndarray:
        """What the rank's operations take."""
        nodes, duration = self.job.nodes[rank], self.job.recorded.timing[rank].duration_ns
        of_transfers = [*filter(_is_of_transfers, changes)]
        for change in changes:
            if _is_not_made(change):
                duration = np.where(_not_made(nodes, change)[0], 0, duration)
            elif _is_of_transfers(change):
                if change.part == "unmatched":
                    duration = self._without_unknown_waits(duration, rank, change)
                # Together: a call that holds several messages is no shorter than the longest of them.
                duration = self._no_longer(duration, rank, self.transfers(of_transfers))
            else:
                duration = np.where(_chosen_ops(nodes, change), self._changed(duration, rank, change), duration)
        return duration

    def _changed(self, duration: np.ndarray, rank: int, change: Change) -> np.ndarray:
        if change.to in (PEERS, EVEN):
            return self.peers.durations(rank, change.part, self._apart(change))
        if change.to == ALONE:
            return np.minimum(duration, self.peers.contention.alone[rank].lengths_ns())
        return _scaled(duration, change)

    def _apart(self, change: Change) -> frozenset[int] | None:
        """Ranks that are not compared with: the changed ones; `None` where all are put together."""
        if change.to == EVEN:
            return None
        return frozenset(self.job.nodes) if change.ranks is None else change.ranks

    def _host(self, rank: int, changes: Sequence[Change]) -> HostTiming:
        """What the rank's CPU work takes.

        The profiler's overhead goes first: a CPU twice as fast takes half of what is left, and one like its peers what
        they take without it. Loading data is no part of either, and goes last. Who waits for a batch of workers waits
        for it until then all the same, unless that is changed.
        """
        nodes, host_ns, cost_ns = self.job.nodes[rank], self.job.recorded.timing[rank].host.ns, 0
        is_loader_as_recorded = all(change.part not in ("rank", "cpu", "data") for change in changes)
        for change in sorted(changes, key=lambda change: (change.part != "profiler", change.part in _OF_CPU_WORK)):
            if _is_not_made(change):
                host_ns = np.where(_not_made(nodes, change)[1], 0, host_ns)
                continue
            chosen = _in_steps(nodes.column("host", "step"), change)
            if change.part == "loop":
                chosen &= rows_named(nodes.piece.host, "loop", str(change.name))
                after = _scaled(host_ns, change)
            else:
                if change.part == "profiler" and change.steps is None:
                    cost_ns = self.peers.overhead_ns[str(change.to)]
                after = self._cpu_work(host_ns, rank, change, self._apart(change), cost_ns)
            host_ns = np.where(chosen, after, host_ns)
            if change.part == "profiler" and is_loader_as_recorded:
                host_ns = with_waits_for_workers(host_ns, *(nodes.column("host", name) for name in ("ns", "takes_up")))
        return nodes.host_timing(host_ns)

    def _calls(self, rank: int, changes: Sequence[Change]) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the segments whose call still waits for the GPU, and whose call is made at all."""
        nodes, recorded = self.job.nodes[rank], self.job.recorded.timing[rank]
        is_blocking, is_called = recorded.is_blocking, recorded.is_called
        for change in changes:
            if change.part == "sync":
                gone = _chosen_calls(nodes.piece, change)
            elif change.part == "loop":
                gone = _waited_in_loop(nodes, change)
            elif change.part == "copy":
                gone = _upload_calls(nodes, _chosen_ops(nodes, change))
            else:
                gone = np.zeros(len(nodes.piece.segments), dtype=bool)
                others = self.peers.ranks[self.peers.of(rank, self._apart(change) or frozenset())].tolist()
                gone[more_calls(self.job.nodes, rank, others)] = True
                gone &= _in_steps(nodes.column("segments", "step"), change)
                is_called = is_called & ~gone
            is_blocking = is_blocking & ~gone
        return is_blocking, is_called

    def _cpu_work(
        self, before: np.ndarray, rank: int, change: Change, apart: frozenset[int] | None, cost_ns: int
    ) -> np.ndarray:
        nodes, peers = self.job.nodes[rank], self.peers
        is_all = change.part in ("rank", "profiler")
        # `data` is the change to what is in the data loader.
        loading = np.where(is_all, 0, np.minimum(nodes.column("host", DATA.column), before))
        if change.to in (PEERS, EVEN):
            return loading + peers.host(rank, cost_ns, apart, is_all=is_all)
        if change.part == "profiler" and change.steps is None:
            return without_profiler(nodes, cost_ns)
        if change.part == "profiler":
            return np.maximum(before - nodes.column("host", "recorded") * peers.overhead_ns[str(change.to)], 0)
        if change.part in _OF_CPU_WORK:
            spent = nodes.column("host", _OF_CPU_WORK[change.part])
            return np.maximum(before - np.round(spent * (1 - float(change.to))).astype(np.int64), 0)
        return loading + _scaled(before - loading, change)

    def _without_unknown_waits(self, duration: np.ndarray, rank: int, change: Change) -> np.ndarray:
        """The rank's durations with calls of which no partner is known as short as the shortest of the same work."""
        nodes = self.job.nodes[rank]
        chosen = _chosen_ops(nodes, change).copy()
        chosen[array_of(self.job.joins, "op")[self.job.joins_of(rank)]] = False
        rows, durations = np.flatnonzero(chosen), duration.copy()
        same = Groups.of_numbers(nodes.column("ops", "work")[rows])
        durations[rows] = np.where(
            nodes.column("ops", "work")[rows] == NONE, durations[rows], same.smallest(durations[rows])[same.of_row]
        )
        return durations

    def _no_longer(self, duration: np.ndarray, rank: int, after: np.ndarray) -> np.ndarray:
        """The rank's durations, where calls that wait for partners last no longer than their changed transfers."""
        rows = self.job.joins_of(rank)
        rows = rows[self.job.joins["waits"].to_numpy(dtype=bool)[rows]]
        durations, op = duration.copy(), array_of(self.job.joins, "op")[rows]
        longest = np.zeros_like(durations)
        np.maximum.at(longest, op, after[rows])
        durations[op] = np.minimum(durations[op], longest[op])
        return durations

    def _chosen_joins(self, change: Change) -> np.ndarray:
        """Mask of the calls that the change is about; of the CPU's only what a factor can change."""
        joins = self.job.joins
        chosen = _in_steps(array_of(joins, "step"), change)
        if change.part != "unmatched":
            is_factor = change.part in ("comm", "collective") and not isinstance(change.to, str)
            chosen &= is_factor & (joins["collective"].to_numpy() == change.name if change.name else True)
        for rank, nodes in self.job.nodes.items():
            rows = self.job.joins_of(rank)
            chosen[rows] = _chosen_ops(nodes, change)[array_of(joins, "op")[rows]]
        return chosen if change.ranks is None else chosen & joins["rank"].isin(change.ranks).to_numpy()


def _is_of_transfers(change: Change) -> bool:
    """Whether it tells what transfers take, and not by what all that a rank communicates is multiplied."""
    is_word = change.part in ("comm", "collective") and isinstance(change.to, str)
    return is_word or change.part in ("links", "small", "unmatched")


def _is_not_made(change: Change) -> bool:
    return change.part == "collective" and change.to == NOT_MADE


def _is_of_cpu_work(change: Change) -> bool:
    return change.part in ("rank", "loop", *_OF_CPUS) or _is_not_made(change)


def _is_of_calls(change: Change) -> bool:
    if change.part in ("rank", "cpu"):
        return change.to == PEERS
    return change.part in ("sync", "loop") or (change.part == "copy" and not change.to)


def _is_of_durations(change: Change) -> bool:
    return change.part not in ("sync", "loop", "delays", *_OF_CPUS)


def _scaled(ns: np.ndarray, change: Change) -> np.ndarray:
    scaled: np.ndarray = np.round(ns * float(change.to)).astype(np.int64)
    return scaled


# What a change is about.


def _in_steps(step: np.ndarray, change: Change) -> np.ndarray:
    return np.ones(len(step), dtype=bool) if change.steps is None else np.isin(step, list(change.steps))


def _chosen_ops(nodes: Nodes, change: Change) -> np.ndarray:
    """Mask of the rank's operations that the change is about, by kind, name and step."""
    ops, name = nodes.piece.ops, str(change.name)
    if change.part == "operator":
        operator, _, autograd = name.partition("@")
        chosen = rows_named(ops, "operator", operator) if operator else np.ones(len(ops), dtype=bool)
        chosen = chosen & rows_named(ops, "autograd", autograd) if autograd else chosen
    elif change.part == "kernel":
        chosen = host_names.matches(ops["name"], lambda own: name in own)
    elif change.part == "collective":
        called, which, among = f"{name}@@".split("@")[:3]
        chosen = rows_named(ops, "collective", *(POINT_TO_POINT if called == MESSAGES else (called,)))
        if among:
            chosen &= rows_named(ops, "group_ranks", among)
        chosen = _some_of(ops, chosen, which)
    elif change.part in ("links", "small", "unmatched"):
        chosen = nodes.is_of("comm")
    else:
        chosen = ~nodes.is_of("comm") if change.part == "rank" else nodes.is_of(change.part)
    return chosen & _in_steps(nodes.column("ops", "step"), change)


def _some_of(ops: pd.DataFrame, chosen: np.ndarray, which: str) -> np.ndarray:
    """Those of the chosen operations that a phase launched, or the first `3/4` of each step's; all without either."""
    part, slash, whole = which.partition("/")
    if not slash:
        return chosen & rows_named(ops, "phase", which) if which else chosen
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(array_of(ops, "launch")[rows], kind="stable")]
    steps = Groups.of_numbers(array_of(ops, "step")[rows])
    is_first = int(whole) * (number_in_group(steps.of_row) + 1) <= int(part) * steps.counts()[steps.of_row]
    found = np.zeros(len(ops), dtype=bool)
    found[rows[is_first]] = True
    return found


def _chosen_calls(piece: Piece, change: Change) -> np.ndarray:
    """Mask of the segments that begin with a blocking call of the change's name, in its phase and steps.

    A call is in the phase of what was launched last before it.
    """
    segments, host = piece.segments, piece.host
    chosen = _in_steps(array_of(segments, "step"), change)
    if not change.name:
        return chosen
    call, _, phase = change.name.partition("@")
    chosen &= (segments["call"] == call).to_numpy(dtype=bool)
    if phase:
        host = host[host["is_launch"].to_numpy(dtype=bool)]
        last = host["phase"].astype("object").groupby(array_of(host, "segment")).last().reindex(range(len(segments)))
        # A segment that launches nothing is in the phase of the one before.
        chosen &= (last.ffill().shift() == phase).to_numpy(dtype=bool)
    return chosen


def _upload_calls(nodes: Nodes, chosen: np.ndarray) -> np.ndarray:
    """Mask of the segments that begin when chosen uploads are done, and wait for nothing else: no call waits so."""
    op, segment = nodes.column("blocks", "op"), nodes.column("blocks", "segment")
    is_upload = chosen & host_names.matches(nodes.piece.ops["name"], lambda name: "HtoD" in name)
    waits, others = (np.bincount(segment[held], minlength=len(nodes.piece.segments)) > 0
                     for held in (is_upload[op], ~is_upload[op]))  # fmt: skip
    return np.asarray(waits & ~others)


def _waited_in_loop(nodes: Nodes, change: Change) -> np.ndarray:
    """Mask of the segments that wait for what the loop computes."""
    of_loop = rows_named(nodes.piece.ops, "loop", str(change.name))[nodes.column("blocks", "op")]
    found = np.zeros(len(nodes.piece.segments), dtype=bool)
    found[nodes.column("blocks", "segment")[of_loop]] = True
    return found


def _not_made(nodes: Nodes, change: Change) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the calls and of the copies right before and after them, and of the CPU work for all of these."""
    ops, launch = nodes.piece.ops, nodes.column("ops", "launch")
    chosen = _chosen_ops(nodes, change)
    is_copy = nodes.is_of("copy") | host_names.matches(ops["operator"], lambda name: "copy" in name)
    by_launch = np.argsort(launch, kind="stable")
    in_row = (chosen | is_copy)[by_launch]
    row = np.cumsum(np.append(True, in_row[1:] != in_row[:-1])[: len(in_row)])
    is_gone = np.empty(len(ops), dtype=bool)
    is_gone[by_launch] = in_row & np.isin(row, row[chosen[by_launch]])
    is_gone &= (launch != NONE) | chosen
    gone, kept = (np.bincount(launch[held & (launch != NONE)], minlength=len(nodes.piece.host))
                  for held in (is_gone, ~is_gone))  # fmt: skip
    return is_gone, gone > kept


# What transfers take at a given rate, as others of their kind, or as those of groups that are not changed.


SMALL_BYTES = 1 << 20
BUCKETED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
"""Collectives of which several can be one: those of at most so many bytes cost their latency."""


def are_small(calls: pd.DataFrame) -> np.ndarray:
    """Mask of the calls that buckets can hold, of at most 1 MiB each; those of unknown size are none."""
    is_small = is_true(calls["size_bytes"] <= SMALL_BYTES)
    mask: np.ndarray = (is_small & calls["collective"].isin(BUCKETED)).to_numpy(dtype=bool)
    return mask


def _changed_transfers(job: Job, transfer: np.ndarray, change: Change, chosen: np.ndarray) -> np.ndarray:
    """What the chosen calls' transfers become."""
    if change.to == NOT_MADE:
        return np.full(len(transfer), NEVER)
    if isinstance(change.to, str):
        return _as_others(job, transfer, change, chosen)
    if change.part == "links":
        return np.minimum(transfer, _at_rate(job, change.to))
    if change.part == "unmatched":
        return np.where(job.joins["is_whole"], transfer, np.minimum(transfer, 0))
    scaled = _scaled(transfer, change)
    return np.where(are_small(job.joins), scaled, transfer) if change.part == "small" else scaled


def _at_rate(job: Job, gb_per_s: float) -> np.ndarray:
    """What each matched call's transfer takes at a bus bandwidth; without end where its size is not known.

    Nor is that of a group of which a rank has no trace: what follows the last of the others may be a wait for it.
    """
    joins = job.joins
    ranks = joins.groupby("instance")["rank"].transform("nunique")
    factor = bus_factors(joins["collective"], ranks.astype("Int64")).astype("Float64")
    taken = (joins["size_bytes"] * factor / gb_per_s).astype("Float64").where(joins["is_whole"])
    held: np.ndarray = taken.fillna(np.iinfo(np.int64).max // 2).to_numpy(dtype=np.float64)
    return np.round(held).astype(np.int64)


_KIND, _RANKS = ["collective", "count", "size_bytes"], ["low", "high"]
"""Transfers of one kind move as many bytes between as many ranks; the least and the largest tell which ranks."""


def _as_others(job: Job, transfer: np.ndarray, change: Change, chosen: np.ndarray) -> np.ndarray:
    """Each instance's transfers scaled to what others of its kind take.

    All others (`even`), those of groups that are not changed (`peers`), or the same ranks' that are not chosen
    (`usual`).
    """
    joins = job.joins.assign(ns=transfer, is_chosen=chosen)
    if change.to == PEERS:
        joins["is_chosen"] = joins["rank"].isin(change.ranks or job.nodes)
    groups = joins.groupby("instance")
    each = groups.agg(collective=("collective", "min"), size_bytes=("size_bytes", "max"), count=("rank", "size"),
                      low=("rank", "min"), high=("rank", "max"), ns=("ns", "min"))  # fmt: skip
    own = each["ns"]
    if change.to == EVEN:
        wanted = each.groupby(_KIND, dropna=False)["ns"].transform("median")
    elif change.to == USUAL:
        is_chosen = groups["is_chosen"].any()
        wanted = (
            each.assign(ns=own.where(~is_chosen)).groupby([*_KIND, *_RANKS], dropna=False)["ns"].transform("median")
        )
        wanted = wanted.clip(upper=own).where(is_chosen)
    else:
        is_chosen = groups["is_chosen"].all()
        wanted = _of_others(each, is_chosen).clip(upper=own).where(is_chosen)
    factor = (wanted / own.where(own > 0)).fillna(1.0).reindex(joins["instance"]).to_numpy()
    after = np.round(transfer * factor).astype(np.int64)
    return _without_longer_ones(joins, transfer, after, own) if change.to == PEERS else after


def _of_others(each: pd.DataFrame, is_own: pd.Series) -> pd.Series:
    """What transfers take at most between ranks that are not changed.

    The median of those of the same kind: each group counts once, and of two in the middle the shorter, since slow links
    of other ranks are no measure. Where the others move other numbers of bytes, what so many take them at most. What
    they have none of takes no time.
    """
    others = each[~is_own]
    of_groups = others.groupby([*_KIND, *_RANKS], dropna=False)["ns"].median()
    usual = of_groups.groupby(level=_KIND, dropna=False).quantile(0.5, interpolation="lower")
    found = each[_KIND].merge(usual.reset_index(), on=_KIND, how="left")["ns"].set_axis(each.index)
    by_size = others.groupby(_KIND)["ns"].median().reset_index()
    for (collective, count, size), rows in each[is_own & found.isna()].groupby(_KIND).groups.items():
        same = by_size[(by_size["collective"] == collective) & (by_size["count"] == count)]
        if len(same):
            found[rows] = at_most_ns(size, same["size_bytes"].to_numpy(dtype=np.float64), array_of(same, "ns")).min()
    return found.fillna(0)


def _without_longer_ones(joins: pd.DataFrame, before: np.ndarray, after: np.ndarray, shortest: pd.Series) -> np.ndarray:
    """What is left of calls that hold several messages: beside one that is shorter now the others take what they take.

    All messages of a call end with it; what each takes is what its other end shows.
    """
    is_shorter = pd.Series(after < before, joins.index)
    is_beside = is_shorter.groupby([joins["rank"], joins["op"]]).transform("any") & ~is_shorter
    own = shortest.reindex(joins["instance"]).to_numpy()
    left: np.ndarray = np.where(is_beside, np.minimum(after, own), after).astype(np.int64)
    return left
