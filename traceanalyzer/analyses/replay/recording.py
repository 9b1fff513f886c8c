"""What recording takes the hosts: the PyTorch profiler stops for every operator and call that it writes down."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from traceanalyzer.model import RankTrace

TYPICAL, LEAST, MOST = "none", "least", "most"

COST_NS: Mapping[str, int] = MappingProxyType({TYPICAL: 3_200, LEAST: 1_000, MOST: 6_000})
"""Estimated cost of one recorded operator or call of the CUDA interface, with shapes, without Python stacks.

Read off as (step recorded − step without a profiler) ÷ operators and calls of the step, on jobs that their hosts bind,
on three hosts; it differs between hosts and jobs, so that most lies at what the dearest of them took, about 6 µs:
docs/results/recording.md.
"""

RUN_TO_RUN = 0.05
"""Steps of one job without a profiler differ by up to so much from one run to the next: docs/results/recording.md."""

_PROFILER = "kineto"


def recorded_calls(trace: RankTrace, threads: np.ndarray, since: np.ndarray, until: np.ndarray) -> np.ndarray:
    """How many operators and calls the PyTorch profiler wrote down of the threads from each time until another.

    0 for other profilers: what theirs cost has not been measured.
    """
    if trace.meta.format != _PROFILER:
        return np.zeros(len(since), dtype=np.int64)
    frames = (trace.api_calls, trace.host_ops)
    starts = [frame["start_ns"].to_numpy()[np.isin(frame["thread"].to_numpy(), threads)] for frame in frames]
    begun = np.sort(np.concatenate(starts))
    count: np.ndarray = np.searchsorted(begun, until) - np.searchsorted(begun, since)
    return count
