"""Times of operations that contradict each other, check by check."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.grouping import largest_before
from traceanalyzer.analyses.integrity.integrity_checks import (
    CAUSES,
    EVENTS,
    FAR_APART,
    GRAVE,
    NESTED,
    NO_DURATION,
    OPERATIONS,
    OUTSIDE,
    SOME,
    TOO_SHORT,
    Defect,
    by_share,
    have,
    many,
    start,
)
from traceanalyzer.meaning.listed import part_of
from traceanalyzer.meaning.severities import HIGH, INFO
from traceanalyzer.model import RankTrace
from traceanalyzer.model.event_times import LONGEST_CAPTURE_NS, is_outside
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, rows_where
from traceanalyzer.selection.gpu_clock import A_SAMPLE

_NOT_SHORT_NS = 5_000
"""Operations that usually take so long are not rounded to nothing, not even in whole microseconds."""

_SHORTEST_NS = 100
"""An empty kernel runs for some 700 ns on an H200."""

_HOST_MEMORIES = ("pageable", "pinned")


def far_apart(trace: RankTrace) -> list[Defect]:
    """Operations that lie further apart than any recording lasts: single times are damaged."""
    begin, end = int(array_of(trace.gpu_ops, "start_ns")[0]), int(array_of(trace.gpu_ops, "end_ns").max())
    if end - begin <= LONGEST_CAPTURE_NS:
        return []
    text = (
        f"The operations span {(end - begin) / 3.6e12:,.0f} hours, longer than any recording lasts: times of some are "
        "damaged, or the file holds two recordings."
    )
    return [Defect(FAR_APART, HIGH, 1, None, text, (EVENTS,))]


def outside(trace: RankTrace) -> list[Defect]:
    """Some operations of a recording, and more than a few, that ran when it did not: times of one part are damaged.

    Where it is all of them, the GPU's clock is another than the recorder's.
    """
    is_odd = is_outside(array_of(trace.gpu_ops, "start_ns"), (trace.meta.capture_start_ns, trace.meta.capture_end_ns))
    count, total = int(is_odd.sum()), len(is_odd)
    text = (
        f"{part_of(count, total, 'operation')} {start(count)} more than 10 s before the recording began or after it "
        "ended, as the file says itself: their times are damaged, or the file holds two recordings."
    )
    return [Defect(OUTSIDE, HIGH, count, total, text, (EVENTS,))] if 0 < count < total else []


def too_short(trace: RankTrace) -> list[Defect]:
    """Kernels that usually take less time than a GPU needs for the smallest: the unit of times is mistaken."""
    lengths = (array_of(trace.gpu_ops, "end_ns") - array_of(trace.gpu_ops, "start_ns"))[
        is_any(trace.gpu_ops["activity"], "kernel")
    ]
    lengths = lengths[lengths > 0]
    if len(lengths) < A_SAMPLE or np.median(lengths) >= _SHORTEST_NS:
        return []
    count = int((lengths < _SHORTEST_NS).sum())
    text = (
        f"{count:,} kernels of {len(lengths):,} run for less than {_SHORTEST_NS} ns, which no GPU does: times are in "
        "another unit than the file says (too short by 1,000 times?), and so are all that are shown."
    )
    return [Defect(TOO_SHORT, HIGH, count, len(lengths), text, (EVENTS,))]


def overlaps_on_a_stream(trace: RankTrace) -> list[Defect]:
    """Operations that start before an earlier one of their stream has ended: a stream runs one after the other."""
    ops = _one_after_the_other(trace.gpu_ops)
    starts, ends, stream = (array_of(ops, name) for name in ("start_ns", "end_ns", "stream"))
    order = np.lexsort((ends, starts, stream))
    count = int((starts[order] < largest_before(ends[order], stream[order])).sum())
    text = (
        f"{many(count, 'operation')} {start(count)} before an earlier one on the same stream has ended (programmatic "
        "dependent launches do; else the times are inexact): sums of durations exceed the time that has passed."
    )
    severity = by_share(count, len(ops))
    return [Defect("overlaps_on_a_stream", severity, count, len(ops), text, ("kernels", "streams"))] if count else []


def nested_on_a_stream(trace: RankTrace) -> list[Defect]:
    """Operations that run wholly inside an earlier one of their stream: no stream runs so, early launches included.

    A dependent launch may begin early, but ends after what it depends on. The operations of a CUDA graph may run side
    by side, whatever stream they are recorded on.
    """
    ops = _one_after_the_other(trace.gpu_ops)
    ops = rows_where(ops, ops["graph_node"].isna().to_numpy())
    starts, ends, stream = (array_of(ops, name) for name in ("start_ns", "end_ns", "stream"))
    order = np.lexsort((-ends, starts, stream))
    lengths, latest = (ends - starts)[order], largest_before(ends[order], stream[order])
    is_nested = (starts[order] < latest) & (ends[order] <= latest) & (lengths > 0)
    count = int(is_nested.sum())
    is_grave = count >= SOME * len(ops) or lengths[is_nested].sum() >= SOME * lengths.sum()
    text = (
        f"{part_of(count, len(ops), 'operation')} run{'s' if count == 1 else ''} inside an earlier one of the same "
        "stream, which runs one after the other: durations are damaged, streams have lost their numbers, or the file "
        "holds the work of several processes."
    )
    return [Defect(NESTED, HIGH if is_grave else INFO, count, len(ops), text, (EVENTS,))] if count else []


def _one_after_the_other(ops: pd.DataFrame) -> pd.DataFrame:
    """All but copies from one memory of the host to another: the driver makes them with the CPU, beside the stream."""
    is_of_host = (is_any(ops[name], *_HOST_MEMORIES) for name in ("source_memory", "target_memory"))
    return rows_where(ops, ~np.logical_and(*is_of_host))


def operations_without_duration(trace: RankTrace) -> list[Defect]:
    """Operations that end where they start, or before (a reader takes negative durations for none)."""
    is_none = array_of(trace.gpu_ops, "end_ns") <= array_of(trace.gpu_ops, "start_ns")
    count = int(is_none.sum())
    text = f"{many(count, 'GPU operation')} {have(count)} no duration, or had a negative one: their time is missing."
    total = len(trace.gpu_ops)
    is_grave = count > 0 and (2 * count >= total or _lost_time(trace, is_none) >= GRAVE * total)
    return (
        [Defect(NO_DURATION, HIGH if is_grave else by_share(count, total), count, total, text, OPERATIONS)]
        if count
        else []
    )


def _lost_time(trace: RankTrace, is_none: np.ndarray) -> int:
    """How many operations without a duration are no short ones: of their name half of the others take 5 µs and more."""
    names: Any = column_of(trace.gpu_ops, "name")
    codes = names.codes
    took = array_of(trace.gpu_ops, "end_ns") - array_of(trace.gpu_ops, "start_ns")
    usual = pd.Series(took[~is_none]).groupby(codes[~is_none]).median()
    return int((usual.reindex(codes[is_none]) >= _NOT_SHORT_NS).sum())


def operations_before_their_launch(trace: RankTrace) -> list[Defect]:
    """Operations that start before the call that launched them: the clocks of host and GPU disagree."""
    launch = array_of(trace.gpu_ops, "launch")
    held = launch != NONE
    if not held.any():
        return []
    early = array_of(trace.gpu_ops, "start_ns")[held] < array_of(trace.api_calls, "start_ns")[launch[held]]
    count = int(early.sum())
    text = (
        f"{many(count, 'GPU operation')} {start(count)} before the call that launched them: the clocks of host and "
        "GPU disagree, and causes of idle time are inexact."
    )
    total = int(held.sum())
    return (
        [Defect("operations_before_their_launch", by_share(count, total), count, total, text, CAUSES)] if count else []
    )
