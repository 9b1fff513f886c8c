"""Launches that wait because the GPU has as many operations before it as its queue holds."""

import numpy as np

from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

FULL_QUEUE = 900
"""Launches ahead of the GPU from which on a launch may block: the queue holds 1,024."""

SLOW_LAUNCH_NS = 30_000
"""A launch into a full queue blocks for longer than this; others are work."""


@once_a_trace
def into_full_queue(trace: RankTrace) -> np.ndarray:
    """Mask of the rank's API calls that take long while about as many operations wait as the queue holds.

    The host needs nothing of that time: it is ahead of its GPU.
    """
    calls, launch = trace.api_calls, array_of(trace.gpu_ops, "launch")
    starts = array_of(calls, "start_ns")
    is_slow = array_of(calls, "end_ns") - starts > SLOW_LAUNCH_NS
    if not is_slow.any() or len(launch) < FULL_QUEUE:
        return np.zeros(len(calls), dtype=bool)
    begins, is_launched = array_of(trace.gpu_ops, "start_ns"), launch != NONE
    # What has no launch and begins before anything that has one was queued before the capture began.
    first = begins[is_launched].min(initial=np.iinfo(np.int64).max)
    is_before = ~is_launched & (begins < first)
    launched = np.searchsorted(np.sort(starts[launch[is_launched]]), starts) + is_before.sum()
    begun = np.searchsorted(np.sort(begins[is_launched | is_before]), starts)
    is_full: np.ndarray = is_slow & (launched - begun >= FULL_QUEUE)
    return is_full
