"""Calls that take far longer when they are first made than ever again: modules load, libraries begin."""

from statistics import NormalDist

import numpy as np

from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.analyses.time.intervals import busy
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of, rows_named_so
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of

_CHANCE = NormalDist().cdf(-3.0)
"""How often the first call is as long by chance."""


@once_a_trace
def one_off_calls(trace: RankTrace) -> np.ndarray:
    """Rows in `api_calls`, in order of start, of first calls that take longer than chance, with an idle GPU.

    A call is its function's first with that kernel (or copy); its peers are the function's calls that are no first
    ones. Were it one of n such calls, of exponential lengths, it would be x or longer with a probability of
    (1 + x / their sum)^-n: of all that are tried, one in a thousand may be so by chance. Time in which the GPU works
    does not count: the call may wait for that. Calls that load modules are always such.
    """
    calls, ops = trace.api_calls, trace.gpu_ops
    if calls.empty or ops.empty:
        return np.empty(0, dtype=np.int64)
    starts, ends = array_of(calls, "start_ns"), array_of(calls, "end_ns")
    launch, kernel = array_of(ops, "launch"), np.full(len(calls), NONE, dtype=np.int64)
    kernel[launch[launch != NONE]] = column_of(ops, "name").codes[launch != NONE]
    names = column_of(calls, "name").codes.astype(np.int64)
    order = np.argsort(starts, kind="stable")
    is_first = np.zeros(len(calls), dtype=bool)
    is_first[order[Groups.of_numbers((names * (kernel.max() + 2) + kernel + 1)[order]).first]] = True
    lengths = lengths_of(calls)
    peers = np.bincount(names, ~is_first)[names]
    peers_ns = np.bincount(names, np.where(is_first, 0, lengths))[names]
    tried = np.flatnonzero(is_first & (peers > 0))
    idle_ns = lengths[tried] - busy(trace).covered_ns(starts[tried], ends[tried])
    chance = (1 + idle_ns / np.maximum(peers_ns[tried], 1)) ** -peers[tried]
    loads = rows_named_so(calls, host_names.is_module_load)
    loads[tried[chance * len(tried) < _CHANCE]] = True
    return order[loads[order]]
