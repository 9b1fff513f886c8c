"""The graph's lengths after some changes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.replay.blocking_calls import more_calls
from traceanalyzer.analyses.replay.change import ALONE, EVEN, FASTEST, HIDDEN, PEERS, USUAL, Change
from traceanalyzer.analyses.replay.job import Job, Lengths
from traceanalyzer.analyses.replay.nodes import Nodes, Timing
from traceanalyzer.analyses.replay.peers import Peers
from traceanalyzer.analyses.replay.piece import MEMORY, Piece
from traceanalyzer.analyses.replay.recording import COST_NS, with_waits_for_workers
from traceanalyzer.analyses.replay.transfer_lengths import are_small, as_in_other_steps, as_on_peers, at_rate, even
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.vocabulary import DATA
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of


def changed(job: Job, peers: Peers, changes: Sequence[Change]) -> Lengths:
    """The recorded lengths with all these changes."""
    timing = {rank: timing_after(job, peers, rank, concerning(rank, changes)) for rank in job.nodes}
    return Lengths(timing, transfers_after(job, changes), keeps_waits(changes), met_after(job, changes))


def concerning(rank: int, changes: Sequence[Change]) -> tuple[Change, ...]:
    """The changes of what a rank does itself; two that do the same to it are equal, whatever other ranks they name."""
    own = (change for change in changes if change.part != "waits" and (change.ranks is None or rank in change.ranks))
    return tuple(change if change.to == PEERS else _of_all(change) for change in own)


def concerning_each(ranks: Collection[int], changes: Sequence[Change]) -> Mapping[int, tuple[Change, ...]]:
    """The same for each rank: those that no change names have the same."""
    named = frozenset[int]().union(*(change.ranks or () for change in changes))
    others = concerning(NONE, changes)
    return {rank: concerning(rank, changes) if rank in named else others for rank in ranks}


@lru_cache(1_024)
def _of_all(change: Change) -> Change:
    return replace(change, ranks=None)


def timing_after(job: Job, peers: Peers, rank: int, changes: Sequence[Change]) -> Timing:
    """What the rank's operations and host take after changes that concern it.

    What recording takes goes first: a host twice as fast takes half of what is left, and one like its peers what they
    take without it. Who waits for a batch of workers waits for it until then all the same, unless that is changed.
    """
    timing = job.recorded.timing[rank]
    is_loader_as_recorded = all(change.part not in ("rank", "host", "data") for change in changes)
    for change in sorted(changes, key=lambda change: change.part != "profiler"):
        if change.part == "profiler" and change.steps is None:
            peers = peers.unrecorded(COST_NS[str(change.to)])
        timing = _timing(job, peers, timing, rank, change, changes)
        if change.part == "profiler" and is_loader_as_recorded:
            host = (job.nodes[rank].column("host", name) for name in ("ns", "takes_up"))
            timing = replace(timing, host_ns=with_waits_for_workers(timing.host_ns, *host))
    return timing


def transfers_after(job: Job, changes: Sequence[Change]) -> np.ndarray:
    """What follows once each matched call's partners are there."""
    asked = tuple(change for change in changes if change.part in ("comm", "collective", "links", "small"))
    known = job.transfers
    if asked not in known:
        for oldest in list(known)[: max(0, len(known) - _MOST_KNOWN + 1)]:
            del known[oldest]
        known[asked] = _transfers_after(job, asked)
    return known[asked]


def met_after(job: Job, changes: Sequence[Change]) -> np.ndarray:
    """What follows once each host's partners in a collective of the CPU are there."""
    meetings = job.meetings
    met = meetings.after_ns
    for change in changes:
        if change.part in ("comm", "collective") and not isinstance(change.to, str):
            chosen = _in_steps(meetings.step, change)
            if change.name:
                chosen = chosen & (meetings.name == change.name)
            if change.ranks is not None:
                chosen = chosen & np.isin(meetings.rank, list(change.ranks))
            met = np.where(chosen, np.round(met * change.to).astype(np.int64), met)
    return met


_PARTS_OF_HOSTS: Mapping[str, str] = MappingProxyType({"data": DATA.column, "memory": MEMORY})
"""Parts of the hosts' work that can be changed alone: the columns that hold them."""

_MOST_KNOWN = 8
"""Answers of `transfers_after` that are kept: every rank, and many sets of changes, ask for the same."""


def _transfers_after(job: Job, changes: Sequence[Change]) -> np.ndarray:
    transfer = job.recorded.transfer_ns
    for change in changes:
        if change.part == "comm" and change.to == EVEN:
            transfer = even(job, transfer)
        elif change.to == USUAL:
            transfer = as_in_other_steps(job, transfer, _chosen_joins(job, change))
        elif change.part == "links":
            transfer = np.where(
                _chosen_joins(job, change), np.minimum(transfer, at_rate(job, float(change.to))), transfer
            )
        elif change.part == "small":
            chosen = _chosen_joins(job, change) & are_small(job.joins)
            transfer = np.where(chosen, np.round(transfer * float(change.to)).astype(np.int64), transfer)
        elif change.part == "comm" and change.to == PEERS:
            transfer = np.where(_chosen_joins(job, change), as_on_peers(job, transfer, change.ranks), transfer)
        elif change.part in ("comm", "collective") and not isinstance(change.to, str):
            transfer = np.where(_chosen_joins(job, change), np.round(transfer * change.to).astype(np.int64), transfer)
    return transfer


def keeps_waits(changes: Sequence[Change]) -> bool:
    """Whether calls still wait for their partners."""
    return all(change.part != "waits" for change in changes)


def _chosen_joins(job: Job, change: Change) -> np.ndarray:
    joins = job.joins
    chosen = np.ones(len(joins), dtype=bool)
    for rank in job.nodes:
        rows = job.joins_of(rank)
        op = array_of(joins, "op")[rows]
        chosen[rows] = _chosen_ops(job, rank, change)[op]
    if change.ranks is not None:
        chosen &= joins["rank"].isin(change.ranks).to_numpy()
    return chosen


def _chosen_ops(job: Job, rank: int, change: Change) -> np.ndarray:
    """Mask of the rank's operations that the change is about, by kind, name and step."""
    ops = job.nodes[rank].piece.ops
    if change.part == "operator":
        chosen = is_any(ops["operator"], str(change.name))
    elif change.part == "kernel":
        chosen = host_names.matches(ops["name"], lambda name: str(change.name) in name)
    elif change.part == "collective":
        names = POINT_TO_POINT if change.name == MESSAGES else (change.name,)
        chosen = is_any(ops["collective"], *names)
    elif change.part in ("links", "small"):
        chosen = job.nodes[rank].is_comm
    elif change.part == "rank":
        chosen = ~job.nodes[rank].is_comm
    else:
        chosen = job.nodes[rank].is_of(change.part)
    mask: np.ndarray = chosen if change.steps is None else chosen & _in_steps(array_of(ops, "step"), change)
    return mask


def _in_steps(step: np.ndarray, change: Change) -> np.ndarray:
    if change.steps is None:
        return np.ones(len(step), dtype=bool)
    return np.isin(step, list(change.steps))


def _timing(job: Job, peers: Peers, timing: Timing, rank: int, change: Change, changes: Sequence[Change]) -> Timing:
    if change.part in ("waits", "delays"):
        return replace(timing, has_lag=timing.has_lag and change.part == "waits")
    if change.part == "sync":
        return replace(timing, is_blocking=timing.is_blocking & ~_chosen_calls(job.nodes[rank].piece, change))
    if change.part == "comm" and change.to == HIDDEN:
        return replace(timing, is_hidden=True)
    if _is_of_transfers(change):
        # Together: a call that holds several messages is no shorter than the longest of them.
        after = transfers_after(job, [each for each in changes if _is_of_transfers(each)])
        return replace(timing, duration_ns=no_longer_than_transfers(job, timing, rank, after))
    if change.part == "loop":
        return _without_loop(job.nodes[rank], timing, change)
    if change.part not in ("host", *_PARTS_OF_HOSTS, "profiler"):
        timing = replace(timing, duration_ns=_durations(job, peers, timing, rank, change))
    if change.part in ("rank", "host", *_PARTS_OF_HOSTS, "profiler"):
        timing = replace(timing, host_ns=_host(job, peers, timing, rank, change))
    if change.part in ("rank", "host") and change.to == PEERS:
        is_own = _calls_of_its_own(job, peers, rank, change)
        timing = replace(timing, is_blocking=timing.is_blocking & ~is_own, is_called=timing.is_called & ~is_own)
    return timing


def _without_loop(nodes: Nodes, timing: Timing, change: Change) -> Timing:
    """Less of the host's work for the loop's turns behind the first; nor does it wait for what they compute."""
    piece, name = nodes.piece, str(change.name)
    chosen = is_any(piece.host["loop"], name) & _in_steps(array_of(piece.host, "step"), change)
    host_ns = np.where(chosen, np.round(timing.host_ns * float(change.to)).astype(np.int64), timing.host_ns)
    op, segment = (array_of(piece.blocks, each) for each in ("op", "segment"))
    is_waited = np.zeros(len(piece.segments), dtype=bool)
    is_waited[segment[is_any(piece.ops["loop"], name)[op]]] = True
    return replace(timing, host_ns=host_ns, is_blocking=timing.is_blocking & ~is_waited)


def _is_of_transfers(change: Change) -> bool:
    """Whether it tells what transfers take, and not by what all that a rank communicates is multiplied."""
    return change.part in ("links", "small") or (change.part in ("comm", "collective") and isinstance(change.to, str))


def _calls_of_its_own(job: Job, peers: Peers, rank: int, change: Change) -> np.ndarray:
    """Mask of the segments that begin with a blocking call that the rank makes more often in the step than any peer."""
    segments = job.nodes[rank].piece.segments
    columns = peers.of(rank, _changed_ranks(job, change) or frozenset())
    is_own = np.zeros(len(segments), dtype=bool)
    is_own[more_calls(job.nodes, rank, peers.ranks[columns].tolist())] = True
    return is_own & _in_steps(array_of(segments, "step"), change)


def _chosen_calls(piece: Piece, change: Change) -> np.ndarray:
    """Mask of the segments that begin with a blocking call of the change's name, in its phase and steps.

    A call is in the phase of what was launched last before it.
    """
    segments = piece.segments
    chosen = _in_steps(array_of(segments, "step"), change)
    if not change.name:
        return chosen
    call, _, phase = change.name.partition("@")
    chosen &= (segments["call"] == call).to_numpy(dtype=bool)
    if phase:
        host = piece.host[piece.host["is_launch"].to_numpy(dtype=bool)]
        last = host["phase"].astype("object").groupby(array_of(host, "segment")).last().reindex(range(len(segments)))
        # A segment that launches nothing is in the phase of the one before.
        before = last.ffill().shift()
        chosen &= (before == phase).to_numpy(dtype=bool)
    return chosen


def _durations(job: Job, peers: Peers, timing: Timing, rank: int, change: Change) -> np.ndarray:
    before = timing.duration_ns
    if change.to in (PEERS, EVEN):
        after = peers.durations(rank, _changed_ranks(job, change))
    elif change.to == ALONE:
        after = np.minimum(before, job.nodes[rank].alone.lengths_ns())
    else:
        after = np.round(before * float(change.to)).astype(np.int64)
    return np.where(_chosen_ops(job, rank, change), after, before)


def _host(job: Job, peers: Peers, timing: Timing, rank: int, change: Change) -> np.ndarray:
    nodes, before = job.nodes[rank], timing.host_ns
    if change.to in (PEERS, EVEN):
        after = peers.host(rank, _changed_ranks(job, change))
    elif change.to == FASTEST:
        after = peers.fastest_host(rank)
    elif change.part == "profiler" and before is nodes.recorded.host_ns and change.steps is None:
        after = peers.own_host(rank)
    elif change.part == "profiler":
        after = np.maximum(before - nodes.column("host", "recorded") * COST_NS[str(change.to)], 0)
    elif change.part in _PARTS_OF_HOSTS:
        spent = nodes.column("host", _PARTS_OF_HOSTS[change.part])
        after = np.maximum(before - np.round(spent * (1 - float(change.to))).astype(np.int64), 0)
    else:
        after = np.round(before * float(change.to)).astype(np.int64)
    if change.steps is None:
        return np.asarray(after)
    return np.where(_in_steps(nodes.column("host", "step"), change), after, before)


def _changed_ranks(job: Job, change: Change) -> frozenset[int] | None:
    """Ranks that are not compared with; `None` where all are put together."""
    if change.to == EVEN:
        return None
    return frozenset(job.nodes) if change.ranks is None else change.ranks


def no_longer_than_transfers(job: Job, timing: Timing, rank: int, after: np.ndarray) -> np.ndarray:
    """The rank's durations, where calls that wait for partners last no longer than their changed transfers `after`."""
    rows = job.joins_of(rank)
    rows = rows[job.joins["waits"].to_numpy(dtype=bool)[rows]]
    durations = timing.duration_ns.copy()
    op = array_of(job.joins, "op")[rows]
    longest = np.zeros_like(durations)
    np.maximum.at(longest, op, after[rows])
    durations[op] = np.minimum(durations[op], longest[op])
    return durations
