"""Every communication call of each rank with its arguments, recorded or inferred."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import (
    CALL,
    GPU_END,
    GPU_START,
    GROUP_IF_KNOWN,
    GROUP_RANKS,
    RANK,
    STEP_OF_LAUNCH,
    Result,
    plain_values,
    stack,
    taken,
)
from traceanalyzer.analyses.breakdown import step_numbers
from traceanalyzer.analyses.grouping import Groups, by_category, largest_before
from traceanalyzer.analyses.host.activity import range_around
from traceanalyzer.analyses.trace import launch_moments
from traceanalyzer.meaning.columns import Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    as_objects,
    columns_of,
    is_name,
    mask_of,
    nowhere,
    nullable,
    outer_first,
    picked,
    rows_named,
    rows_where,
    table_of,
    texts_of,
    whole,
    whole_of,
    with_columns,
)
from traceanalyzer.selection import is_lost_launch

_SENT = frozenset((*kinds.POINT_TO_POINT, "all_to_all", "gather", "scatter"))
"""Host operations that NCCL carries out by sending and receiving."""


def owners(trace: RankTrace, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of `comm_args`, and for each the position in `rows` of the call that it describes; a kernel's own win.

    Those of one call are in order: that of its kernel, then host operations as they begin: around a launch, or before
    a launch that is inside none.
    """
    of_op = nowhere(len(trace.gpu_ops) + 1)
    of_op[rows] = np.arange(len(rows))
    gpu_op, starts, ends, threads = arrays_of(trace.comm_args, "gpu_op", "start_ns", "end_ns", "thread")
    call_of_kernel = of_op[gpu_op]
    of_kernel, host = np.flatnonzero(call_of_kernel != NONE), np.flatnonzero(gpu_op == NONE)
    # One launch of a graph may carry many kernels: they share its operators on the CPU.
    launch = trace.launch[rows]
    single, row, times = np.unique(launch, return_index=True, return_counts=True)
    single, row = single[(times == 1) & (single != NONE)], row[(times == 1) & (single != NONE)]
    following, since_ns = _next_calls(trace, single, starts[host], threads[host])
    host, following, since_ns = (own[following != NONE] for own in (host, following, since_ns))
    call = row[following]
    is_around = since_ns < ends[host]
    # Others are those before the launch but for those that launched a kernel of their own, which the capture lost.
    lost, lost_ns = _next_calls(trace, np.flatnonzero(is_lost_launch(trace.api_calls)), starts[host], threads[host])
    launched_itself = (lost != NONE) & (lost_ns < ends[host])
    fits = ~np.isin(call, call[is_around]) & ~launched_itself & _carries(trace, rows[call], host)
    held = (is_around | fits) & ~np.isin(call, call_of_kernel[of_kernel])
    host, call = host[held], call[held]
    order = outer_first(starts[host], ends[host])
    host, call = host[order], call[order]
    is_outer = ends[host] > largest_before(ends[host], call)
    return np.concatenate([of_kernel, host[is_outer]]), np.concatenate([call_of_kernel[of_kernel], call[is_outer]])


def _next_calls(
    trace: RankTrace, rows: np.ndarray, times: np.ndarray, threads: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each time the first of these API calls that begins on its thread from then on: its position and start; -1."""
    begins, own_threads = arrays_of(trace.api_calls, "start_ns", "thread", rows=rows)
    found = nowhere(len(times))
    for thread in np.intersect1d(threads, own_threads).tolist():
        own, asked = np.flatnonzero(own_threads == thread), np.flatnonzero(threads == thread)
        own = own[np.argsort(begins[own], kind="stable")]
        found[asked] = np.append(own, NONE)[np.searchsorted(begins[own], times[asked])]
    return found, np.append(begins, NONE)[found]


def _carries(trace: RankTrace, ops: np.ndarray, host: np.ndarray) -> np.ndarray:
    """Whether a kernel that sends and receives is of a host operation that is sent, and another of another.

    Where the kernel's name tells no collective, it may be of any.
    """
    collective = by_category(trace.gpu_ops["name"].array[ops], kinds.kernel_collective)
    is_sent = by_category(trace.comm_args["collective"].array[host], lambda name: name in _SENT).astype(bool)
    carries: np.ndarray = pd.isna(collective) | ((collective == "send_recv") == is_sent)
    return carries


OPERATOR = "operator"
"""Where the arguments of such calls come from."""


def with_operators(trace: RankTrace, rows: np.ndarray, calls: pd.DataFrame) -> pd.DataFrame:
    """The calls, where those without arguments have collective, dtype and size from the operator around their launch.

    `rows` are their positions in `trace.gpu_ops`. Peer-to-peer copies keep their own bytes. Sizes of kernels are taken
    where their library's operators have the tensors as arguments. The group's size may stand in the kernel's name.
    """
    kernels = by_category(calls["name"].array, kinds.comm_kernel)
    in_name = pd.array([kernel and kernel.group_size for kernel in kernels], dtype="Int64")
    calls = with_columns(calls, group_size=pd.Series(calls["group_size"].array).fillna(pd.Series(in_name)).array)
    is_silent = calls["arguments"].isna().to_numpy()
    operator = np.where(is_silent, comm_operators(trace, rows), NONE) if is_silent.any() else nowhere(len(rows))
    has_operator = operator != NONE
    if not has_operator.any():
        return calls
    names, shapes, dtypes = (taken(trace.host_ops[name].array, operator) for name in ("name", "shapes", "dtypes"))
    is_copy = rows_named(calls, "activity", "memcpy")
    of_kernel = by_category(calls["name"].array, kinds.kernel_collective)
    of_kernel[is_copy] = None
    what = calls["collective"].astype("object")
    for others in (of_kernel, by_category(names, kinds.operator_collective)):
        what = what.where(what.notna(), others)
    told = zip(what, texts_of(shapes), texts_of(dtypes), plain_values(calls["group_size"]), kernels, strict=True)
    facts = [
        kinds.operator_bytes(collective, shape, dtype, ranks, kernel and kernel.dtype)
        if kernel is None or kernel.sizes
        else kinds.OperatorBytes()
        for collective, shape, dtype, ranks, kernel in told
    ]
    sizes = pd.Series([fact.size_bytes for fact in facts], calls.index, dtype="Int64").mask(is_copy)
    of_operator = pd.Series([fact.dtype for fact in facts], calls.index, dtype="object").mask(is_copy)
    return calls.assign(
        collective=what,
        dtype=calls["dtype"].astype("object").fillna(of_operator),
        size_bytes=calls["size_bytes"].fillna(sizes),
        arguments=calls["arguments"].mask(sizes.notna() | (is_copy & has_operator), OPERATOR),
    )


def comm_operators(
    trace: RankTrace, rows: np.ndarray, is_of: Callable[[str], bool] = kinds.is_comm_operator
) -> np.ndarray:
    """For each call the row in `host_ops` of the innermost communicating operator around its launch, else -1."""
    own = np.flatnonzero(mask_of(trace.host_ops["name"].array, is_of))
    found = nowhere(len(rows))
    launched = np.flatnonzero(trace.launch[rows] != NONE)
    moments, threads = launch_moments(trace, rows[launched])
    operators = picked(trace.host_ops, own, ("start_ns", "end_ns", "thread"))
    found[launched] = np.append(own, NONE)[range_around(operators, threads, moments)]
    return found


_FIRST = (
    "group", "group_description", "group_ranks", "group_size", "dtype", "in_elements", "out_elements", "in_split",
    "out_split", "sequence",
)  # fmt: skip
"""Arguments of which a call has that of its first operation that tells it."""


INFERRED_SIZE = "host, size inferred"
"""Where the arguments come from of calls whose communicator was made before the capture."""


def merged(args: pd.DataFrame, rows: np.ndarray, call: np.ndarray, count: int) -> dict[str, Any]:
    """Columns of arguments, for each of so many calls; those of coalesced operations are added up or listed.

    Args:
        args: `comm_args` of the trace.
        rows: of these arguments.
        call: for each of the rows the call that it is of.
        count: of calls.
    """
    own = {name: values.take(rows) for name, values in columns_of(args).items()}
    groups, names = Groups.of_numbers(call), own["collective"]
    # Size of the full arrays; NA when elements or dtype of one are unknown.
    elements = own["in_elements"].copy()
    gathers = is_name(names, "all_gather")
    elements[gathers] = own["out_elements"][gathers]
    sizes = elements * pd.array(by_category(own["dtype"], kinds.dtype_bytes), dtype="Int64")
    sizes = pd.Series(own["size_bytes"]).fillna(pd.Series(sizes)).array
    splits = [by_category(own[name], _differ) for name in ("in_split", "out_split")]
    is_uneven, is_cut = (groups.any((splits[0] == how) | (splits[1] == how)) for how in ("uneven", "cut"))
    is_inferred, is_kernel = groups.any(own["has_inferred_size"]), groups.any(own["gpu_op"] != NONE)
    several = np.where(groups.any(~is_name(names, *kinds.POINT_TO_POINT)), "coalesced", "send_recv")
    only, is_named = groups.only_known(names), groups.any(~names.isna())
    peers = np.full(len(groups), None, dtype=object)
    for row in np.flatnonzero((names.codes != NONE) & ~own["peer"].isna()).tolist():
        before, text = peers[groups.of_row[row]], f"{names[row]} {own['peer'][row]}"
        peers[groups.of_row[row]] = f"{before}, {text}" if before else text
    found = {
        **{name: groups.first_known(own[name]) for name in _FIRST},
        "collective": as_objects(np.where(is_named & only.isna(), several, texts_of(only))),
        "size_bytes": nullable(groups.sums(whole(sizes, 0)), groups.any(sizes.isna())),
        # Where split sizes that the trace shows are equal, but it left some out, nobody knows.
        "is_uneven": pd.arrays.BooleanArray(is_uneven, is_cut & ~is_uneven),
        "peers": as_objects(peers),
        "arguments": as_objects(np.select([is_inferred, is_kernel], [INFERRED_SIZE, "kernel"], "host").astype(object)),
    }
    place = nowhere(count)
    place[call[groups.first]] = np.arange(len(groups))
    return {name: values.take(place, allow_fill=True) for name, values in found.items()}


def _differ(split: str) -> str:
    sizes = {*split.split(",")}
    is_uneven = len(sizes - {kinds.CUT_LIST}) > 1
    return "uneven" if is_uneven else "cut" if kinds.CUT_LIST in sizes else "even"


ARGUMENTS = (
    "collective", "group", "group_description", "group_ranks", "group_size", "dtype", "in_elements",
    "out_elements", "in_split", "out_split", "size_bytes", "is_uneven", "peers",
)  # fmt: skip
"""What positions in the program have in common; a sequence number they do not."""

INFERRED = "inferred"


def with_inferred(calls: pd.DataFrame) -> pd.DataFrame:
    """One rank's calls, where those launched before the capture have arguments if a later step shows them.

    Kernels queued when the capture began are the end of the step before it. Counted from its end, each is
    the call at the same position from a later step's end on the same stream, as long as name and grid agree;
    the first that disagrees ends the run, and the step that agrees on most tells. `arguments` says `inferred`.
    """
    step, streams, is_told = whole_of(calls, "step"), array_of(calls, "stream"), calls["arguments"].notna().to_numpy()
    in_step = np.flatnonzero(step != NONE)
    queued = np.flatnonzero(~is_told[: in_step[0] if len(in_step) else 0])
    if not len(queued):
        return calls
    steps = [*dict.fromkeys(step[in_step].tolist())]
    kernel = Groups.of(calls, ("name", "grid"), with_absent=True).of_row
    source = np.arange(len(calls))
    for stream in np.unique(streams[queued]):
        targets, best = queued[streams[queued] == stream][::-1], queued[:0]
        # The last step may be cut, so its end says nothing; a sole one is all there is. Several may be queued.
        for number in steps[:-1] or steps:
            template = np.flatnonzero(is_told & (streams == stream) & (step == number))[::-1]
            sources = np.resize(template, len(targets) if len(template) else 0)
            agrees = kernel[targets[: len(sources)]] == kernel[sources]
            best = max(best, sources[: int(np.argmin(np.append(agrees, False)))], key=len)
        source[targets[: len(best)]] = best
    is_inferred = source != np.arange(len(calls))
    filled = {name: calls[name].array[source] for name in (*ARGUMENTS, "arguments")}
    filled["arguments"] = as_objects(np.where(is_inferred, INFERRED, array_of(calls, "arguments")))
    return with_columns(calls, **filled)


class Calls(Result):
    """One row for each communication kernel or peer-to-peer copy, in order of start within a rank."""

    title = "Communication calls"
    is_detail = True
    keys = ("rank", "call")
    columns = declared(
        rank=RANK,
        call=CALL,
        step=STEP_OF_LAUNCH,
        start_ns=GPU_START,
        end_ns=GPU_END,
        stream="Stream that it ran on.",
        collective="Collective or point-to-point operation; `coalesced` for different ones in one kernel.",
        group=GROUP_IF_KNOWN,
        group_description="What the group is for.",
        group_ranks=GROUP_RANKS,
        group_size="Number of ranks in the group.",
        dtype="Element type.",
        size_bytes=(
            "Size of the full array: all-reduce its buffer, all-gather the output, reduce-scatter the input, "
            "all-to-all the send buffer, else the buffer; summed over coalesced operations."
        ),
        sequence=Column.ident(
            "NCCL's number of the call within its group; where PyTorch records one, its id on all ranks (`Comms Id`)."
        ),
        peers="Peers of send and receive operations: `send 1, recv 1`.",
        is_uneven=(
            "Whether an all-to-all's split sizes differ; absent when those that the trace shows are equal, but it "
            "left some out."
        ),
        arguments=(
            "Where the arguments come from: kernel, host, operator (sizes only, by the dimensions of the one that "
            "launched it), or inferred from a later step (for a kernel that was launched before the capture); "
            "host, size inferred: by the number of ranks that call its communicator, whose making the capture does "
            "not hold. Absent when unknown."
        ),
    )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's communication operations, each with the arguments of its kernel, else of its host operations.

    A kernel's host operations are those around its launch on the same thread; a launch outside any (a group's
    end) carries those that ended on its thread since the communication launch before it, but for those that launched
    a kernel of their own, which the capture lost, and those that its kernel cannot carry. Of operations inside each
    other the outermost speaks.
    """
    ops = trace.gpu_ops
    rows = np.flatnonzero(rows_named(ops, "kind", "comm"))
    if not len(rows):
        return pd.DataFrame()
    of_ops = {name: ops[name].array[rows] for name in ("start_ns", "end_ns", "stream", "name", "activity", "grid")}
    arguments = merged(trace.comm_args, *owners(trace, rows), len(rows))
    numbers = {"call": np.arange(len(rows)), "gpu_op": rows, "step": step_numbers(trace, rows)}
    table = table_of({"call": numbers["call"], **of_ops, **numbers, **arguments})
    calls = with_inferred(_completed(with_operators(trace, rows, table), ops["bytes"].array[rows]))
    is_counted = trace.counted[rows]
    return calls if is_counted.all() else rows_where(calls, is_counted).reset_index(drop=True)


def across(parts: Mapping[int, pd.DataFrame]) -> Calls:
    """The ranks' calls under each other."""
    return Calls(stack(parts, tuple(Calls.columns)))


def _completed(table: pd.DataFrame, moved_bytes: Any) -> pd.DataFrame:
    """Fill what the operation itself tells: collective from its name, bytes of a peer-to-peer copy."""
    names: Any = table["name"].array
    is_copy = rows_named(table, "activity", "memcpy")
    of_name = np.where(is_copy, "peer_copy", by_category(names, kinds.kernel_collective))
    recorded = array_of(table, "collective")
    collective = np.where(pd.isna(recorded), of_name, recorded)
    collective[pd.isna(collective)] = "unknown"
    # A copy moves its own bytes: the host's call may carry out its collective by several.
    is_moved = is_copy & ~moved_bytes.isna()
    size_bytes = table["size_bytes"].array.copy()
    size_bytes[is_moved] = moved_bytes[is_moved]
    return with_columns(table, collective=as_objects(collective), size_bytes=size_bytes)
