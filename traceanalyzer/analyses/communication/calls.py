"""Every communication call of each rank with its arguments, recorded or inferred."""

from collections.abc import Callable, Mapping, Sequence
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
    all_known,
    plain_values,
    stack,
    taken,
)
from traceanalyzer.analyses.grouping import Groups, by_category, largest_before
from traceanalyzer.analyses.time.steps import step_numbers
from traceanalyzer.analyses.trace import launch_moments
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    as_objects,
    columns_of,
    mask_of,
    outer_first,
    rows_named,
    rows_where,
    table_of,
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
    of_op = np.full(len(trace.gpu_ops) + 1, NONE, dtype=np.int64)
    of_op[rows] = np.arange(len(rows))
    args = trace.comm_args
    call_of_kernel = of_op[array_of(args, "gpu_op")]
    of_kernel, host = np.flatnonzero(call_of_kernel != NONE), np.flatnonzero(array_of(args, "gpu_op") == NONE)
    launch = array_of(trace.gpu_ops, "launch")[rows]
    launched = np.flatnonzero(launch != NONE)
    begun, thread = (array_of(trace.api_calls, name)[launch[launched]] for name in ("start_ns", "thread"))
    alone = _once(begun, thread)
    launched, begun, thread = launched[alone], begun[alone], thread[alone]
    starts, ends, threads = (array_of(args, name)[host] for name in ("start_ns", "end_ns", "thread"))
    found = _next_of_group(starts, threads, begun, thread)
    has_next = found != NONE
    host, starts, ends, threads, found = (each[has_next] for each in (host, starts, ends, threads, found))
    call, is_around = launched[found], begun[found] < ends
    has_around = np.isin(call, call[is_around])
    fits = ~_launched_itself(trace, starts, ends, threads) & _carries(trace, rows[call], host)
    kept = (is_around | (~has_around & fits)) & ~np.isin(call, call_of_kernel[of_kernel])
    host, call, starts, ends = host[kept], call[kept], starts[kept], ends[kept]
    order = outer_first(starts, ends)
    order = order[
        ends[order] > largest_before(ends[order], call[order])
    ]  # of operations inside each other the outermost
    return np.concatenate([of_kernel, host[order]]), np.concatenate([call_of_kernel[of_kernel], call[order]])


def _once(starts: np.ndarray, threads: np.ndarray) -> np.ndarray:
    """Positions of launches that no other one equals, as they begin.

    One launch of a graph may carry many kernels: its host operations cannot be told apart.
    """
    order = np.lexsort((threads, starts))
    again = pd.DataFrame({"start": starts, "thread": threads}).duplicated(keep=False).to_numpy()
    return order[~again[order]]


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
    names, collectives = trace.gpu_ops["name"].array[ops], trace.comm_args["collective"].array[host]
    told = by_category(names, kinds.kernel_collective)
    is_sent = by_category(collectives, lambda name: name in _SENT)
    carries: np.ndarray = np.array([own is None for own in told], dtype=bool)
    carries |= (told == "send_recv") == is_sent.astype(bool)
    return carries


def _next_of_group(times: np.ndarray, groups: np.ndarray, of_times: np.ndarray, of_groups: np.ndarray) -> np.ndarray:
    """For each row the position among the others of the first of its group at its time or later; -1 for none.

    The others are in order of time.
    """
    found = np.full(len(times), NONE, dtype=np.int64)
    for group in np.unique(groups):
        rows, others = np.flatnonzero(groups == group), np.flatnonzero(of_groups == group)
        found[rows] = np.append(others, NONE)[np.searchsorted(of_times[others], times[rows], side="left")]
    return found


OPERATOR = "operator"
"""Where the arguments of such calls come from."""


def with_operators(trace: RankTrace, rows: np.ndarray, calls: pd.DataFrame) -> pd.DataFrame:
    """The calls, where those without arguments have collective, dtype and size from the operator around their launch.

    `rows` are their positions in `trace.gpu_ops`. Peer-to-peer copies keep their own bytes. Sizes of kernels are taken
    where their library's operators have the tensors as arguments. The group's size may stand in the kernel's name.
    """
    names = calls["name"].array
    kernels = by_category(names, kinds.comm_kernel)
    in_name = pd.array([kernel and kernel.group_size for kernel in kernels], dtype="Int64")
    calls = with_columns(calls, group_size=pd.Series(calls["group_size"].array).fillna(pd.Series(in_name)).array)
    is_silent = ~calls["arguments"].notna().to_numpy()
    operator = np.where(is_silent, comm_operators(trace, rows), NONE) if is_silent.any() else np.full(len(rows), NONE)
    has_operator = operator != NONE
    if not has_operator.any():
        return calls
    texts = {name: taken(trace.host_ops[name].array, operator) for name in ("name", "shapes", "dtypes")}
    is_copy = rows_named(calls, "activity", "memcpy")
    of_kernel = by_category(names, kinds.kernel_collective)
    of_kernel[is_copy] = None
    what = _operator_arguments_filled(calls["collective"].array, of_kernel)
    what = _operator_arguments_filled(what, by_category(texts["name"], kinds.operator_collective))
    has_bytes = np.array([kernel is None or kernel.sizes is not None for kernel in kernels], dtype=bool)
    own_dtypes = np.array([kernel and kernel.dtype for kernel in kernels], dtype=object)
    keys = (what, texts["shapes"], texts["dtypes"], calls["group_size"].array, own_dtypes)
    dtypes, sizes = _bytes_of(keys, np.flatnonzero(has_operator & ~is_copy & has_bytes))
    arguments = np.array(calls["arguments"].array, dtype=object)
    arguments[~sizes.isna() | (is_copy & has_operator)] = OPERATOR
    return with_columns(
        calls,
        collective=as_objects(what),
        dtype=as_objects(_operator_arguments_filled(calls["dtype"].array, dtypes)),
        size_bytes=calls["size_bytes"].array.fillna(sizes),
        arguments=as_objects(arguments),
    )


def _operator_arguments_filled(values: Any, others: np.ndarray) -> np.ndarray:
    """Objects, and others where they are absent."""
    objects = np.array(values, dtype=object)
    return np.where(pd.isna(objects), others, objects)


def comm_operators(
    trace: RankTrace, rows: np.ndarray, is_of: Callable[[str], bool] = kinds.is_comm_operator
) -> np.ndarray:
    """For each call the row in `host_ops` of the innermost communicating operator around its launch, else -1."""
    launch = array_of(trace.gpu_ops, "launch")[rows]
    own = np.flatnonzero(mask_of(trace.host_ops["name"].array, is_of))
    found = np.full(len(rows), NONE, dtype=np.int64)
    launched = np.flatnonzero(launch != NONE)
    if not len(own) or not len(launched):
        return found
    moments, threads = launch_moments(trace, rows[launched])
    starts, ends, thread_of = (array_of(trace.host_ops, name)[own] for name in ("start_ns", "end_ns", "thread"))
    for thread in np.unique(threads):
        held, asked = np.flatnonzero(thread_of == thread), np.flatnonzero(threads == thread)
        times, reach = moments[asked], np.maximum.accumulate(ends[held])
        outermost = held[ends[held] > np.append(NONE, reach[:-1])] if len(held) else held
        for operators in (outermost, held):  # the innermost, where it is around the launch, overrides
            place = np.searchsorted(starts[operators], times, side="right") - 1
            begun = np.flatnonzero(place >= 0)
            around = operators[place[begun]]
            is_around = ends[around] >= times[begun]
            found[launched[asked[begun[is_around]]]] = own[around[is_around]]
    return found


def _bytes_of(keys: Sequence[Any], rows: np.ndarray) -> tuple[np.ndarray, Any]:
    """Element types and sizes in bytes of these rows, worked out once for equal ones; absent elsewhere."""
    told = [*zip(*(plain_values(pd.Series(values[rows])) for values in keys), strict=True)]
    facts = {each: kinds.operator_bytes(*each) for each in {*told}}
    count = len(keys[0])
    dtypes, sizes = np.full(count, np.nan, dtype=object), np.full(count, None, dtype=object)
    dtypes[rows] = [facts[each].dtype or np.nan for each in told]
    sizes[rows] = [facts[each].size_bytes for each in told]
    return dtypes, pd.array(sizes, dtype="Int64")


_FIRST = (
    "group", "group_description", "group_ranks", "group_size", "dtype", "in_elements", "out_elements", "in_split",
    "out_split", "sequence", "reduction", "root",
)  # fmt: skip
"""Arguments of which a call has that of its first operation that tells it."""


INFERRED_SIZE = "host, size inferred"
"""Where the arguments come from of calls whose communicator was made before the capture."""


def merged(args: pd.DataFrame, rows: np.ndarray, call: np.ndarray, count: int) -> dict[str, Any]:
    """Columns of arguments for each of so many calls; those of coalesced operations are added up or listed.

    Args:
        args: `comm_args` of the trace.
        rows: of these arguments.
        call: for each of the rows the call that it is of.
        count: of calls.
    """
    groups = Groups.of_numbers(call)
    place = np.full(count, NONE, dtype=np.int64)
    place[call[groups.first]] = np.arange(len(groups))
    is_kernel = groups.any(array_of(args, "gpu_op")[rows] != NONE)
    is_inferred = groups.any(array_of(args, "has_inferred_size")[rows])
    columns = columns_of(args)
    found = {
        "collective": _collective(args["collective"].array[rows], groups),
        **{name: groups.first_known(columns[name][rows]) for name in _FIRST},
        "size_bytes": _size(args, rows, groups),
        "is_uneven": _is_uneven(args, rows, groups),
        "peers": _peers(args, rows, groups),
        "host_operations": all_known(groups.counts()),
        "arguments": np.select([is_inferred, is_kernel], [INFERRED_SIZE, "kernel"], "host").astype(object),
    }
    return {name: _taken(values, place) for name, values in found.items()}


def _taken(values: Any, place: np.ndarray) -> Any:
    if not isinstance(values, np.ndarray):
        return values.take(place, allow_fill=True)
    return as_objects(np.append(values, np.array([None], dtype=object))[place])


def _size(args: pd.DataFrame, rows: np.ndarray, groups: Groups) -> Any:
    """Size in bytes of the full arrays of each call; NA when elements or dtype of one are unknown."""
    said, gathered, given = (args[name].array[rows] for name in ("size_bytes", "out_elements", "in_elements"))
    collective: Any = args["collective"].array[rows]
    of_dtype = by_category(args["dtype"].array[rows], kinds.dtype_bytes)
    is_told = np.array([own is not None for own in of_dtype], dtype=bool)
    element = np.where(is_told, of_dtype, 0).astype(np.int64)
    gathers = by_category(collective, lambda name: name == "all_gather") == True  # noqa: E712 - element by element
    elements = np.where(gathers, whole(gathered, 0), whole(given, 0))
    is_known = is_told & ~np.where(gathers, gathered.isna(), given.isna())
    has_said = ~said.isna()
    sizes = np.where(has_said, whole(said, 0), np.where(is_known, elements * element, 0))
    return pd.arrays.IntegerArray(groups.sums(sizes), groups.any(~(has_said | is_known)))


def _is_uneven(args: pd.DataFrame, rows: np.ndarray, groups: Groups) -> Any:
    """Whether split sizes differ; NA when those that the trace shows are equal but it left some out."""
    told = [by_category(args[name].array[rows], _differ) for name in ("in_split", "out_split")]
    is_uneven, is_cut = (groups.any((told[0] == what) | (told[1] == what)) for what in ("uneven", "cut"))
    return pd.arrays.BooleanArray(is_uneven, is_cut & ~is_uneven)


def _differ(split: str) -> str:
    sizes = set(split.split(","))
    if len(sizes - {kinds.CUT_LIST}) > 1:
        return "uneven"
    return "cut" if kinds.CUT_LIST in sizes else "even"


def _peers(args: pd.DataFrame, rows: np.ndarray, groups: Groups) -> np.ndarray:
    """`send 1, recv 1` of each call that has peers."""
    peer = args["peer"].array[rows]
    collective: Any = args["collective"].array[rows]
    found = np.full(len(groups), None, dtype=object)
    is_named = np.flatnonzero(~peer.isna() & (collective.codes != NONE))
    for row in is_named[np.argsort(groups.of_row[is_named], kind="stable")].tolist():
        group, text = groups.of_row[row], f"{collective[row]} {peer[row]}"
        found[group] = text if found[group] is None else f"{found[group]}, {text}"
    return found


def _collective(collective: Any, groups: Groups) -> np.ndarray:
    """The collective of a call; several in one kernel are `send_recv` when all are messages, else `coalesced`."""
    codes = collective.codes.astype(np.int64)
    names = np.array([*collective.categories, None], dtype=object)
    most = groups.largest(codes)
    least = groups.smallest(np.where(codes == NONE, len(names), codes))
    is_message = ~groups.any(~np.isin(names, kinds.POINT_TO_POINT)[codes])
    several = np.where(is_message, "send_recv", "coalesced")
    found: np.ndarray = np.where((most == NONE) | (least == most), names[most], several)
    return found


ARGUMENTS = (
    "collective", "group", "group_description", "group_ranks", "group_size", "dtype", "in_elements",
    "out_elements", "in_split", "out_split", "root", "size_bytes", "is_uneven", "peers", "host_operations",
)  # fmt: skip
"""What positions in the program have in common; a sequence number they do not."""

INFERRED = "inferred"


def with_inferred(calls: pd.DataFrame) -> pd.DataFrame:
    """One rank's calls, where those launched before the capture have arguments if a later step shows them.

    Kernels queued when the capture began are the end of the step before it. Counted from its end, each is
    the call at the same position from a later step's end on the same stream, as long as name and grid agree;
    the first that disagrees ends the run. `arguments` says `inferred`.
    """
    in_step = np.flatnonzero(calls["step"].notna().to_numpy())
    queued = np.flatnonzero(~calls["arguments"].notna().to_numpy()[: in_step[0] if len(in_step) else 0])
    step = whole_of(calls, "step")
    steps = [*dict.fromkeys(step[in_step].tolist())]
    # The last step may be cut, so its end says nothing; a sole one is all there is.
    templates = steps[:-1] or steps
    streams = array_of(calls, "stream")[queued]
    found = [_best_match(calls, queued[streams == stream], step, templates) for stream in np.unique(streams)]
    if not any(len(rows) for rows, _ in found):
        return calls
    rows, sources = (np.concatenate(each) for each in zip(*found, strict=True))
    filled = {name: calls[name].array.copy() for name in (*ARGUMENTS, "arguments")}
    for name in ARGUMENTS:
        filled[name][rows] = filled[name][sources]
    filled["arguments"][rows] = INFERRED
    return with_columns(calls, **filled)


def _best_match(
    calls: pd.DataFrame, rows: np.ndarray, step_of: np.ndarray, steps: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that get arguments and the rows they get them from: the step that agrees on most.

    Counted from both ends, the positions up to the first whose kernels differ; several steps may be queued.
    """
    streams = array_of(calls, "stream")
    told = (streams == streams[rows[0]]) & calls["arguments"].notna().to_numpy()
    kernel = Groups.of(calls, ("name", "grid"), with_absent=True).of_row
    targets, found = rows[::-1], (rows[:0], rows[:0])
    for step in steps:
        template = np.flatnonzero(told & (step_of == step))[::-1]
        if len(template):
            sources = template[np.arange(len(rows)) % len(template)]
            run = int(np.argmin(np.append(kernel[targets] == kernel[sources], False)))
            found = max(found, (targets[:run], sources[:run]), key=lambda match: len(match[0]))
    return found


class Calls(Result):
    """One row for each communication kernel or peer-to-peer copy, in order of start within a rank."""

    title = "Communication calls"
    is_detail = True
    keys = ("rank", "call")
    columns = {
        "rank": RANK,
        "call": CALL,
        "step": STEP_OF_LAUNCH,
        "start_ns": GPU_START,
        "end_ns": GPU_END,
        "stream": Column.ident("Stream that it ran on."),
        "collective": Column.text(
            "Collective or point-to-point operation; `coalesced` for different ones in one kernel.",
            written=Written.COLLECTIVE,
        ),
        "group": GROUP_IF_KNOWN,
        "group_description": Column.text("What the group is for.", is_secondary=True, replaced_by="group_label"),
        "group_ranks": GROUP_RANKS,
        "group_size": Column.number("Number of ranks in the group.", is_aside=True),
        "dtype": Column.text("Element type.", written=Written.DTYPE, is_aside=True),
        "size_bytes": Column.size(
            "Size of the full array: all-reduce its buffer, all-gather the output, reduce-scatter the input, "
            "all-to-all the send buffer, else the buffer; summed over coalesced operations.",
            is_aside=True,
        ),
        "sequence": Column.ident("NCCL's number of the call within its group."),
        "reduction": Column.text(
            "What a reducing collective computes: sum, avg, max, min, product. Absent when the trace does not say: "
            "NCCL's payloads in Nsight reports do, PyTorch's profiler does not; a kernel named `Sum` serves all.",
            is_aside=True,
        ),
        "root": Column.ident("Root of a rooted collective."),
        "peers": Column.text("Peers of send and receive operations: `send 1, recv 1`."),
        "host_operations": Column.count("Host operations that the call carries.", is_compared=False),
        "is_uneven": Column.flag(
            "Whether an all-to-all's split sizes differ; absent when those that the trace shows are equal, "
            "but it left some out."
        ),
        "arguments": Column.text(
            "Where the arguments come from: kernel, host, operator (sizes only, by the dimensions of the one "
            "that launched it), or inferred from a later step (for a kernel that was launched before the capture); "
            "host, size inferred: by the number of ranks that call its communicator, whose making the capture does "
            "not hold. Absent when unknown."
        ),
    }


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
    said = array_of(table, "collective")
    collective = np.where(pd.isna(said), of_name, said)
    collective[pd.isna(collective)] = "unknown"
    # A copy moves its own bytes: the host's call may carry out its collective by several.
    is_moved = is_copy & ~moved_bytes.isna()
    size_bytes = table["size_bytes"].array.copy()
    size_bytes[is_moved] = moved_bytes[is_moved]
    return with_columns(table, collective=as_objects(collective), size_bytes=size_bytes)
