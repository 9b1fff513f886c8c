"""What of each operation's start its known reasons explain: launch latency, turnaround, and the lag that is left."""

import numpy as np
from msgspec import Struct

from traceanalyzer.analyses.replay.piece import Piece
from traceanalyzer.meaning.vocabulary import LAUNCH_NS, SHORT_NS
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

LATENCY_NS = 20_000
"""From a launching call's start to its operation's start, with nothing else to wait for, at most."""

TYPICAL_LATENCY_NS, TYPICAL_TURNAROUND_NS = 8_000, 1_500
"""Where a capture shows none."""

_LONG_AGO = -(1 << 60)


class Explained(Struct, frozen=True):
    """For each operation: from the end before it in its stream, from its launch, from each wait's source, to its start.

    Attributes:
        turnaround_ns: after the operation before it in its stream.
        latency_ns: after its launching call's start.
        wait_ns: for each row of `waits`, after its source's end.
        lag_ns: what is left when the latest of these had come.
        release_ns: recorded start of operations that nothing recorded comes before or explains, else -1.
    """

    turnaround_ns: np.ndarray
    latency_ns: np.ndarray
    wait_ns: np.ndarray
    lag_ns: np.ndarray
    release_ns: np.ndarray


def explained(piece: Piece) -> Explained:
    """Delays are as recorded where they decide, up to a limit, and the rank's median where something else decides."""
    ops = piece.ops
    starts = array_of(ops, "start_ns")
    ends = starts + array_of(ops, "duration_ns")
    first = piece.begins_stream
    previous = np.where(first, _LONG_AGO, np.append(0, ends[:-1])[: len(ends)])
    launched = launch_times(piece)
    source, target = array_of(piece.waits, "source"), array_of(piece.waits, "target")
    reached = np.full(len(ops), _LONG_AGO)
    np.maximum.at(reached, target, ends[source])
    after, since = starts - previous, starts - launched
    queued = launched + TYPICAL_LATENCY_NS < np.maximum(previous, reached)
    turnaround = _median(after[queued & (after >= 0) & (after < SHORT_NS)], TYPICAL_TURNAROUND_NS)
    free = (launched > np.maximum(previous, reached)) & (since >= 0) & (since < LATENCY_NS)
    latency = _median(since[free], TYPICAL_LATENCY_NS)
    by_launch = launched + latency > np.maximum(previous, reached)
    by_wait = ~by_launch & (reached > previous)
    turnarounds = np.minimum(after, np.where(by_launch | by_wait, turnaround, SHORT_NS))
    latencies = np.minimum(since, np.where(by_launch, LATENCY_NS, latency))
    waits = np.minimum(starts[target] - ends[source], np.where(by_wait[target], SHORT_NS, turnaround))
    ready = np.maximum(previous + turnarounds, launched + latencies)
    np.maximum.at(ready, target, ends[source] + waits)
    # What was launched before the capture, and began late for no reason, was launched late: nothing moves that.
    is_untold = (array_of(ops, "launch") == NONE) & (starts - ready > LAUNCH_NS) & (not piece.why_no_host)
    has_reason = (ready > _LONG_AGO // 2) & ~is_untold
    return Explained(turnarounds, latencies, waits, np.where(has_reason, starts - ready, 0),
                     np.where(has_reason, NONE, starts))  # fmt: skip


def launch_times(piece: Piece) -> np.ndarray:
    """Recorded start of each operation's launching call; long ago for none."""
    host = piece.host
    begins = array_of(piece.segments, "begin_ns")
    times = begins[array_of(host, "segment")] + offsets(array_of(host, "segment"), array_of(host, "ns"))
    launched: np.ndarray = np.append(times, _LONG_AGO)[array_of(piece.ops, "launch")]
    return launched


def offsets(segment: np.ndarray, ns: np.ndarray) -> np.ndarray:
    """For each stretch of the host its end since its segment's begin; segments are in order."""
    total = np.cumsum(ns, axis=0)
    is_first = np.append(True, segment[1:] != segment[:-1])[: len(segment)]
    before = np.where(is_first, total - ns, 0)
    return total - np.maximum.accumulate(before, axis=0)


def _median(values: np.ndarray, default: int) -> int:
    return int(np.median(values)) if len(values) else default
