"""Which call each row of communication arguments describes: that of its kernel, or of the launch that it is around."""

import numpy as np

from traceanalyzer import kinds
from traceanalyzer.analyses.grouping import by_category, largest_before
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import outer_first
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of
from traceanalyzer.selection import is_lost_launch

_SENT = frozenset((*kinds.POINT_TO_POINT, "all_to_all", "gather", "scatter"))
"""Host operations that NCCL carries out by sending and receiving."""


def owners(trace: RankTrace, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of `comm_args`, and for each the position in `rows` of the call that it describes; a kernel's own win.

    Those of one call are in order: that of its kernel, then host operations as they begin.
    """
    of_op = np.full(len(trace.gpu_ops), NONE, dtype=np.int64)
    of_op[rows] = np.arange(len(rows))
    op = array_of(trace.comm_args, "gpu_op")
    of_kernel = np.flatnonzero(op != NONE)
    call_of_kernel = of_op[op[of_kernel]]
    is_call = call_of_kernel != NONE
    of_host, call_of_host = _of_host(trace, rows, np.flatnonzero(op == NONE))
    is_free = ~np.isin(call_of_host, call_of_kernel)
    return (
        np.concatenate([of_kernel[is_call], of_host[is_free]]),
        np.concatenate([call_of_kernel[is_call], call_of_host[is_free]]),
    )


def _of_host(trace: RankTrace, rows: np.ndarray, host: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for host operations: around a launch, or before a launch that is inside none."""
    launch = array_of(trace.gpu_ops, "launch")[rows]
    launched = np.flatnonzero(launch != NONE)
    begun, thread = (array_of(trace.api_calls, name)[launch[launched]] for name in ("start_ns", "thread"))
    alone = _once(begun, thread)
    launched, begun, thread = launched[alone], begun[alone], thread[alone]
    args = trace.comm_args
    starts, ends, threads = (array_of(args, name)[host] for name in ("start_ns", "end_ns", "thread"))
    found = _next_of_group(starts, threads, begun, thread)
    has_next = found != NONE
    host, starts, ends, threads, found = (each[has_next] for each in (host, starts, ends, threads, found))
    call = launched[found]
    is_around = begun[found] < ends
    has_around = np.zeros(len(rows), dtype=bool)
    has_around[call[is_around]] = True
    fits = ~_launched_itself(trace, starts, ends, threads) & _carries(trace, rows[call], host)
    kept = is_around | (~has_around[call] & fits)
    return _outermost(host[kept], call[kept], starts[kept], ends[kept])


def _once(starts: np.ndarray, threads: np.ndarray) -> np.ndarray:
    """Positions of launches that no other one equals, as they begin.

    One launch of a graph may carry many kernels: its host operations cannot be told apart.
    """
    order = np.lexsort((threads, starts))
    is_new = np.ones(len(order) + 1, dtype=bool)
    is_new[1:-1] = (np.diff(starts[order]) != 0) | (np.diff(threads[order]) != 0)
    return order[is_new[:-1] & is_new[1:]]


def _launched_itself(trace: RankTrace, starts: np.ndarray, ends: np.ndarray, threads: np.ndarray) -> np.ndarray:
    """Host operations during which their thread launched a kernel that the capture does not have."""
    lost = np.flatnonzero(is_lost_launch(trace.api_calls))
    if not len(lost):
        return np.zeros(len(starts), dtype=bool)
    begun, thread = (array_of(trace.api_calls, name)[lost] for name in ("start_ns", "thread"))
    found = _next_of_group(starts, threads, begun, thread)
    itself: np.ndarray = (found != NONE) & (begun[found] < ends)
    return itself


def _carries(trace: RankTrace, ops: np.ndarray, host: np.ndarray) -> np.ndarray:
    """Whether a kernel that sends and receives is of a host operation that is sent, and another of another.

    Where the kernel's name tells no collective, it may be of any.
    """
    names, collectives = column_of(trace.gpu_ops, "name")[ops], column_of(trace.comm_args, "collective")[host]
    told = by_category(names, kinds.kernel_collective)
    is_sent = by_category(collectives, lambda name: name in _SENT)
    carries: np.ndarray = np.array([own is None for own in told], dtype=bool)
    carries |= (told == "send_recv") == is_sent.astype(bool)
    return carries


def _outermost(
    host: np.ndarray, call: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Those that lie in no other one of their call, as they begin, and their calls."""
    order = outer_first(starts, ends)
    is_outermost = ends[order] > largest_before(ends[order], call[order])
    kept = order[is_outermost]
    return host[kept], call[kept]


def _next_of_group(times: np.ndarray, groups: np.ndarray, of_times: np.ndarray, of_groups: np.ndarray) -> np.ndarray:
    """For each row the position among the others of the first of its group at its time or later; -1 for none.

    The others are in order of time.
    """
    found = np.full(len(times), NONE, dtype=np.int64)
    for group in np.unique(groups).tolist():
        rows, others = np.flatnonzero(groups == group), np.flatnonzero(of_groups == group)
        place = np.searchsorted(of_times[others], times[rows], side="left")
        found[rows] = np.append(others, NONE)[place]
    return found
