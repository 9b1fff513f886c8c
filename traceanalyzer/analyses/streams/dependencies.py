"""How long each stream waited for events of other streams: from the recorded waits, else inferred."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.meaning.vocabulary import SHORT_NS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, columns_of, with_columns

RECORDED, INFERRED, PARTLY = "recorded", "inferred", "partly inferred"

_LONG_AGO, _UNKNOWN = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""When an event was reached: before anything that is known; nobody knows."""


class Dependency(Struct, frozen=True):
    """Time in which a stream's next operation was launched and the stream was free, but it waited for another stream.

    Attributes:
        time_ns: of that the part in which other streams run; stretches under 5 µs are left out.
        known_by: `recorded`: until the events that the capture has were reached; `inferred`: until the operation
            began, for the capture has no waits; `partly inferred`: some of its waits name no event.
    """

    time_ns: int
    known_by: str


def of_streams(trace: RankTrace) -> dict[int, Dependency]:
    """The dependency of each stream that ran something."""
    streams = {int(stream): _Stream.of(trace, int(stream)) for stream in trace.gpu_ops["stream"].unique()}
    waits = _waits(trace)
    if (array_of(waits, "record_ns") == _UNKNOWN).all():
        return {number: _dependency(trace, own, None) for number, own in streams.items()}
    held_back = _reached(waits, streams)
    return {number: _dependency(trace, own, held_back.get(number, ([], []))) for number, own in streams.items()}


@dataclass(slots=True)
class _Stream:
    """A stream's operations in the order in which they were launched, and the waits that it was told of so far.

    `last_end_ns[i]` is when the first i operations had ended, `latest_ns[i]` when the known of the first i events were
    reached, and `unknown[i]` how many of them are not known.
    """

    rows: np.ndarray
    launched_ns: list[int]
    last_end_ns: list[int]
    told_ns: list[int] = field(default_factory=list)
    reached_ns: list[int] = field(default_factory=list)
    latest_ns: list[int] = field(default_factory=lambda: [_LONG_AGO])
    unknown: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def of(cls, trace: RankTrace, number: int) -> "_Stream":
        rows = np.flatnonzero(array_of(trace.gpu_ops, "stream") == number)
        launch = array_of(trace.gpu_ops, "launch")[rows]
        calls = np.append(array_of(trace.api_calls, "start_ns"), _LONG_AGO)  # NONE: queued before the capture
        order = np.argsort(calls[launch], kind="stable")
        ends = np.maximum.accumulate(array_of(trace.gpu_ops, "end_ns")[rows[order]])
        return cls(rows[order], calls[launch][order].tolist(), [_LONG_AGO, *ends.tolist()])

    def done_ns(self, time_ns: int) -> int:
        """When all that the stream had been given by a time of the host had ended: operations, and waits since.

        Waits before the last operation are over when that ends, so that only unknown ones since then matter.
        """
        place = bisect_left(self.launched_ns, time_ns)
        since = self.launched_ns[place - 1] if place else _LONG_AGO
        begin, end = bisect_left(self.told_ns, since), bisect_left(self.told_ns, time_ns)
        if self.unknown[end] > self.unknown[begin]:
            return _UNKNOWN
        return max(self.last_end_ns[place], self.latest_ns[end])

    def wait(self, told_ns: int, reached_ns: int) -> None:
        """Note that the stream was told to wait for an event."""
        is_unknown = reached_ns == _UNKNOWN
        self.told_ns.append(told_ns)
        self.reached_ns.append(reached_ns)
        self.latest_ns.append(self.latest_ns[-1] if is_unknown else max(self.latest_ns[-1], reached_ns))
        self.unknown.append(self.unknown[-1] + is_unknown)


def _waits(trace: RankTrace) -> pd.DataFrame:
    """The trace's waits with the host's time of each event's record, unknown where the trace does not say."""
    waits = trace.stream_waits
    record = array_of(waits, "record")
    is_known = ~column_of(waits, "source_stream").isna() & (record != NONE)
    recorded = np.append(array_of(trace.api_calls, "start_ns"), _UNKNOWN)[np.where(is_known, record, NONE)]
    return with_columns(waits, record_ns=recorded)


def _reached(waits: pd.DataFrame, streams: Mapping[int, _Stream]) -> dict[int, tuple[list[int], list[int]]]:
    """By stream when it was told to wait, and when the event was reached.

    An event is reached when all that its stream had been given before it was recorded has ended; that may be a wait for
    a third stream (NCCL keeps one that runs nothing), so that the waits are followed in the host's order.
    """
    known = dict(streams)
    columns = ("start_ns", "stream", "source_stream", "record_ns")
    for told, stream, source, recorded in zip(*(waits[name].tolist() for name in columns), strict=True):
        waiting = known.setdefault(stream, _Stream(np.empty(0, dtype=np.int64), [], [_LONG_AGO]))
        other = known.get(source) if recorded != _UNKNOWN else None
        reached = _UNKNOWN if recorded == _UNKNOWN else _LONG_AGO if other is None else other.done_ns(recorded)
        waiting.wait(told, reached)
    return {number: (own.told_ns, own.reached_ns) for number, own in known.items()}


def _dependency(trace: RankTrace, own: _Stream, waits: tuple[list[int], list[int]] | None) -> Dependency:
    """The stretches between the stream's operations that were spent waiting; without `waits` all are taken for that."""
    ops, calls = columns_of(trace.gpu_ops), trace.api_calls
    starts, ends, launch = (ops[name][own.rows] for name in ("start_ns", "end_ns", "launch"))
    launched = np.where(launch == NONE, starts, np.append(array_of(calls, "end_ns"), 0)[launch])
    until, known_by = starts, INFERRED
    if waits is not None:
        reached = _of_operations(own, *waits)
        until = np.minimum(starts, reached)
        known_by = PARTLY if (reached == _UNKNOWN).any() else RECORDED
    busy = Intervals.of(starts, ends)
    free = np.append(_LONG_AGO, busy.ends)[np.searchsorted(busy.starts, starts, side="left")]
    # Only what begins a stretch of work can have been waiting; before the first nothing is known.
    place = np.searchsorted(busy.starts, starts)
    is_first = (free != _LONG_AGO) & (ends > starts) & (np.append(busy.starts, _LONG_AGO)[place] == starts)
    begin, end = np.maximum(np.maximum(free, launched), trace.window.start_ns), np.minimum(until, trace.window.end_ns)
    held = is_first & (end - begin >= SHORT_NS) & ~pd.Series(starts).duplicated().to_numpy()
    is_other = ops["stream"] != ops["stream"][own.rows[0]]
    others = Intervals.of(ops["start_ns"][is_other], ops["end_ns"][is_other])
    return Dependency(int(others.inside(trace.window).covered_ns(begin[held], end[held]).sum()), known_by)


def _of_operations(own: _Stream, told_ns: list[int], reached_ns: list[int]) -> np.ndarray:
    """For each operation the last of the events that its stream was told to wait for since the launch before it."""
    reached = np.full(len(own.rows), _LONG_AGO)
    place = np.searchsorted(own.launched_ns, told_ns, side="right")
    is_followed = place < len(own.rows)
    np.maximum.at(reached, place[is_followed], np.array(reached_ns, dtype=np.int64)[is_followed])
    return reached
