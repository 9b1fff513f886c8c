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

READY_NS = 2_000_000
"""Who takes a batch that is there is done within this time."""

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


def stretches_taken_up(made_meanwhile_ns: np.ndarray, is_after_gpu: np.ndarray) -> np.ndarray:
    """Of each stretch of a host in which it waits for workers' batch, how many up to it that wait takes up; else 0.

    The workers do not hurry because the host comes sooner: what it saves since it last waited, for them or for the
    GPU, it waits for longer.

    Args:
        made_meanwhile_ns: of each stretch the time in which the host takes a batch that other processes make.
        is_after_gpu: the stretches before which the host waited for the GPU.
    """
    waits = made_meanwhile_ns >= READY_NS
    place = np.arange(len(waits))
    begins = is_after_gpu | np.append(False, waits[:-1])[: len(waits)]
    since = np.maximum.accumulate(np.where(begins, place, 0)) if len(place) else place
    return np.where(waits, place + 1 - since, 0)


def with_waits_for_workers(without_ns: np.ndarray, recorded_ns: np.ndarray, takes_up: np.ndarray) -> np.ndarray:
    """The host's stretches without the cost of recording, and with what waits for workers' batches take up of that."""
    saved = np.append(0, np.cumsum(recorded_ns - without_ns))
    end = np.arange(1, len(saved))
    found: np.ndarray = without_ns + np.where(takes_up > 0, saved[end] - saved[end - takes_up], 0)
    return found
