"""What recording takes the hosts: the PyTorch profiler stops for every operator and call that it writes down."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from traceanalyzer.analyses.host import host_names
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

TYPICAL, LEAST, MOST = "none", "least", "most"

COST_NS: Mapping[str, int] = MappingProxyType({TYPICAL: 3_200, LEAST: 1_000, MOST: 6_000})
"""Estimated cost of one recorded operator or call of the CUDA interface, with shapes, without Python stacks.

Read off as (step recorded − step without a profiler) ÷ operators and calls of the step, on jobs that their hosts bind,
on three hosts; it differs between hosts and jobs, so that most lies at what the dearest of them took, about 6 µs:
docs/results/recording.md.
"""

RUN_TO_RUN = 0.05
"""Steps of one job without a profiler differ by up to so much from one run to the next: docs/results/recording.md."""

PLAIN_LAUNCH_NS = 10_000
"""What launching a CUDA graph takes without a profiler, whatever it holds."""

_PROFILER = "kineto"


def recorded_calls(trace: RankTrace, threads: np.ndarray, since: np.ndarray, until: np.ndarray) -> np.ndarray:
    """How many operators and calls the PyTorch profiler wrote down of the threads from each time until another.

    The launch of a CUDA graph counts for what it launches, too. 0 for other profilers: what theirs cost has not been
    measured.
    """
    if trace.meta.format != _PROFILER:
        return np.zeros(len(since), dtype=np.int64)
    frames = (trace.api_calls, trace.host_ops)
    starts = [array_of(frame, "start_ns")[np.isin(array_of(frame, "thread"), threads)] for frame in frames]
    begun = np.sort(np.concatenate([*starts, _of_graphs(trace, threads)]))
    count: np.ndarray = np.searchsorted(begun, until) - np.searchsorted(begun, since)
    return count


def _of_graphs(trace: RankTrace, threads: np.ndarray) -> np.ndarray:
    """Start of the call that launches a graph for each of the graph's operations that is written down in it.

    Such a call takes some 2 µs longer for each; of no more than fit in it at the most that each may cost.
    """
    calls = trace.api_calls
    rows = np.flatnonzero(
        host_names.matches(calls["name"], host_names.is_graph_launch) & np.isin(calls["thread"], threads)
    )
    launch = array_of(trace.gpu_ops, "launch")
    launched = np.bincount(launch[launch != NONE], minlength=len(calls))[rows]
    starts = array_of(calls, "start_ns")[rows]
    spare_ns = array_of(calls, "end_ns")[rows] - starts - PLAIN_LAUNCH_NS
    return np.repeat(starts, np.clip(launched, 0, np.maximum(spare_ns, 0) // COST_NS[MOST]))
