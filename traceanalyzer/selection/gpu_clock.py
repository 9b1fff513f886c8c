"""By how much a GPU's clock differs from its host's, and a trace without that difference."""

from dataclasses import replace

import numpy as np

from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.vocabulary import LAUNCH_NS, SHORT_NS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, with_columns

A_SAMPLE = 100
"""Fewer operations are no sample."""


def on_one_clock(trace: RankTrace) -> RankTrace:
    """The trace with the GPU's times by the host's clock, and a note, where the two clocks differ."""
    ahead_ns = clock_ahead_ns(trace)
    if not ahead_ns:
        return trace
    by, (where, how) = time_text(abs(ahead_ns)), ("ahead of", "earlier") if ahead_ns > 0 else ("behind", "later")
    note = (
        f"The GPU's clock is {by} {where} the host's, as the starts of operations on an idle GPU show: GPU times are "
        f"shown {by} {how}."
    )
    ops, args = trace.gpu_ops, trace.comm_args
    moved = np.where(array_of(args, "gpu_op") != NONE, ahead_ns, 0)
    times = ("start_ns", "end_ns")
    return replace(
        trace,
        meta=replace(trace.meta, notes=(*trace.meta.notes, note)),
        gpu_ops=with_columns(ops, **{name: array_of(ops, name) - ahead_ns for name in times}),
        comm_args=with_columns(args, **{name: array_of(args, name) - moved for name in times}),
    )


def clock_ahead_ns(trace: RankTrace) -> int:
    """How much later the GPU's clock is than the host's (negative: earlier); 0 where they agree, or nothing tells.

    An operation that finds its GPU idle starts within launch latency. Where half of those start equally long after
    their launch, and none sooner, that time is the clocks': the wait in a queue differs from one to the next.
    """
    launch = array_of(trace.gpu_ops, "launch")
    held = launch != NONE
    starts, ends = (array_of(trace.gpu_ops, name) for name in ("start_ns", "end_ns"))
    finds_idle = np.append(False, starts[1:] - np.maximum.accumulate(ends)[:-1] >= SHORT_NS)[: len(starts)] & held
    if np.count_nonzero(finds_idle) < A_SAMPLE:
        return 0
    for call_time, sign in (("end_ns", 1), ("start_ns", -1)):
        delays = starts - array_of(trace.api_calls, call_time)[launch]
        least = int(delays[held].min())
        if sign * least > LAUNCH_NS and np.median(delays[finds_idle]) - least <= LAUNCH_NS:
            return least
    return 0
