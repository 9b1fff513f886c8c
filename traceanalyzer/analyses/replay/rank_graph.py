"""A rank's piece of the graph, from its events."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import by_category, rows_of_each
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import cpu_collectives
from traceanalyzer.analyses.host.api_calls import into_full_queue
from traceanalyzer.analyses.host.idle import blocking
from traceanalyzer.analyses.intervals import EMPTY, Intervals, of_rows
from traceanalyzer.analyses.operators.operator_tree import PASS_NAMES, OperatorTree
from traceanalyzer.analyses.phases import NAMES as PHASES
from traceanalyzer.analyses.replay.changes import recorded_calls, stretches_taken_up
from traceanalyzer.analyses.replay.graph import LATENCY_NS, MEMORY, Piece, explained, no_hosts
from traceanalyzer.analyses.replay.waits import event_waits, touching
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.meaning.vocabulary import DATA, LAUNCH_NS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    column_of,
    columns_of,
    picked,
    rows_where,
    table_of,
    under_each_other,
    with_columns,
)
from traceanalyzer.selection import before_pauses, host_spans, step_at


def piece_of(
    trace: RankTrace, calls: pd.DataFrame, tree: OperatorTree, phases: np.ndarray, ring: np.ndarray,
    loops: pd.Categorical, work: np.ndarray,
) -> Piece:  # fmt: skip
    """Build it; `calls` are the rank's communication calls with their row in `gpu_ops`, `ring` those of a ring.

    `loops` names for each GPU operation the loop that launched it, `work` are the numbers of `same_work`.
    """
    why = _why_no_host(trace)
    if why:  # nor is there anything to follow from a launch then
        trace = replace(trace, api_calls=trace.api_calls.iloc[:0], gpu_ops=trace.gpu_ops.assign(launch=NONE))
    ops = _operations(trace, calls, tree, phases, ring, loops, work)
    host, segments, blocks, meetings, launch_row = _host_chains(trace, ops)
    waits = event_waits(trace, ops)
    launch = launch_row[array_of(ops, "api_call")]
    host = _with_names(host, ops, launch)
    ops = table_of({**columns_of(ops.drop(columns="api_call")), "launch": launch})
    piece = Piece(ops, host, segments, waits, blocks, meetings, _steps(trace), why_no_host=why)
    if len(waits) and waits["is_recorded"].all():
        return piece
    return replace(piece, waits=under_each_other([waits, touching(ops, explained(piece).lag_ns - 3_000)]))


def _why_no_host(trace: RankTrace) -> str:
    if trace.gpu_ops.empty:
        return "no GPU operations"
    if trace.meta.format == "xplane":
        return "waits of JAX's hosts for their GPUs leave no events"
    return "" if (trace.gpu_ops["launch"] != NONE).any() else "the capture has no launches"


def _steps(trace: RankTrace) -> pd.DataFrame:
    steps = trace.steps
    if not len(steps):
        begins = array_of(trace.gpu_ops, "start_ns")[:1]
        return pd.DataFrame({"step": NONE, "begin_ns": begins, "is_paused": False})
    begins = array_of(steps, "host_start_ns")
    return table_of({"step": array_of(steps, "step"), "begin_ns": begins, "is_paused": before_pauses(steps)})


def _operations(
    trace: RankTrace,
    calls: pd.DataFrame,
    tree: OperatorTree,
    phases: np.ndarray,
    ring: np.ndarray,
    loops: pd.Categorical,
    work: np.ndarray,
) -> pd.DataFrame:
    """`Piece.ops` with `api_call`, the row of the launching call, for `launch`."""
    ops = columns_of(trace.gpu_ops)
    order = np.argsort(ops["stream"], kind="stable")
    of_call = {name: pd.Categorical(calls[name] if len(calls) else []) for name in ("collective", "group_ranks")}
    codes = {name: np.full(len(order), NONE, dtype=np.int64) for name in ("call", *of_call)}
    if len(calls):
        row = array_of(calls, "gpu_op")
        codes["call"][row] = array_of(calls, "call")
        for name, values in of_call.items():
            codes[name][row] = values.codes
        work = work.copy()
        work[row] = _work_of_calls(calls)
    call = codes["call"][order]
    owner = np.where(tree.owner >= 0, tree.owner, NONE)[order]
    ends = _ends_with_their_calls(trace)[order]
    numbers = np.append(array_of(trace.steps, "step"), NONE)
    return table_of(
        {
            "row": order,
            **{name: ops[name].take(order) for name in ("stream", "start_ns", "kind", "name")},
            "duration_ns": ends - ops["start_ns"].take(order),
            "work": work[order],
            "operator": _of_owners(trace.host_ops["name"], owner),
            "autograd": pd.Categorical.from_codes(np.append(tree.autograd, NONE)[owner], dtype=PASS_NAMES),
            "shapes": _of_owners(trace.host_ops["shapes"], owner),
            "phase": pd.Categorical.from_codes(phases[order], categories=list(PHASES)),
            "step": numbers[trace.op_step[order]],
            "call": call,
            **{name: pd.Categorical.from_codes(codes[name][order], dtype=own.dtype) for name, own in of_call.items()},
            "is_ring": np.isin(call, ring),
            "api_call": ops["launch"].take(order),
            "loop": loops.take(order),
        }
    )


def _work_of_calls(calls: pd.DataFrame) -> np.ndarray:
    """A number that calls of one collective, size and group share; -1 of unknown size."""
    hashes = pd.util.hash_pandas_object(calls[["collective", "size_bytes", "group_ranks"]].astype("str"), index=False)
    work: np.ndarray = np.where(calls["size_bytes"].isna(), NONE, (hashes.to_numpy() >> np.uint64(1)).astype(np.int64))
    return work


def _of_owners(column: pd.Series, owner: np.ndarray) -> pd.Categorical:
    values: Any = column.array
    return pd.Categorical.from_codes(np.append(values.codes, NONE)[owner], dtype=values.dtype)


def _ends_with_their_calls(trace: RankTrace) -> np.ndarray:
    """Ends of the operations; a blocking copy's is its call's when that returned a moment before.

    A copy from pageable memory returns when its last bytes are staged, some 20 µs before they have arrived: it is the
    copy that blocked the host all the same.
    """
    ops, calls = trace.gpu_ops, trace.api_calls
    ends, launch = array_of(ops, "end_ns"), array_of(ops, "launch")
    is_blocking = np.zeros(len(calls) + 1, dtype=bool)
    is_blocking[blocking(trace)[0]] = True
    returned = np.append(array_of(calls, "end_ns"), 0)[launch]
    is_early = is_blocking[launch] & (launch != NONE) & (returned < ends) & (ends - returned <= LAUNCH_NS)
    made: np.ndarray = np.where(is_early & (returned > array_of(ops, "start_ns")), returned, ends)
    return made


def _with_names(host: pd.DataFrame, ops: pd.DataFrame, launch: np.ndarray) -> pd.DataFrame:
    """Host stretches with the operator, phase and loop of what they launch."""
    held = np.flatnonzero(launch != NONE)
    op = np.full(len(host), NONE)
    op[launch[held]] = held
    return with_columns(host, **{name: _of_owners(ops[name], op) for name in ("operator", "phase", "loop")})


# The host of one rank as segments of work between calls that block it, and what each of those waits for.


Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]
"""`Piece.host`, `segments`, `blocks` and `meetings`."""


def _host_chains(
    trace: RankTrace, ops: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Chains of the threads that launch work, and the row in `host` of each row of `api_calls` that launches.

    Threads that take turns, such as the main one and autograd's, are one chain: what one does after the other waits for
    it. A chain begins with the first thing recorded of its threads, at its recorded time.
    """
    launch_row = np.full(len(trace.api_calls) + 1, NONE, dtype=np.int64)
    parts: list[Tables] = []
    rows = segments = 0
    for threads in _chains(trace):
        chain, calls = _one_chain(trace, ops, threads, segments)
        launch_row[calls[calls != NONE]] = rows + np.flatnonzero(calls != NONE)
        parts.append(chain)
        rows, segments = rows + len(chain[0]), segments + len(chain[1])
    host, own, blocks, meetings = map(under_each_other, zip(*parts or [no_hosts()], strict=True))
    return host, own, blocks, meetings, launch_row


def _chains(trace: RankTrace) -> list[np.ndarray]:
    """The launching threads, those that take turns together, the busiest first."""
    launch = array_of(trace.gpu_ops, "launch")
    # Not numpy's unique: of few distinct values among many pandas finds them ten times faster.
    threads = pd.unique(array_of(trace.api_calls, "thread")[launch[launch != NONE]])
    frames = (trace.api_calls, trace.host_ops)
    busy = {int(thread): _when(threads[threads == thread], frames) for thread in threads}
    chains: list[tuple[list[int], Intervals]] = []
    for thread in sorted(busy, key=lambda thread: -busy[thread].total_ns):
        own = busy[thread]
        for place, (members, time) in enumerate(chains):
            if (time & own).total_ns <= SHARE * own.total_ns:
                chains[place] = ([*members, thread], time | own)
                break
        else:
            chains.append(([thread], own))
    return [np.array(members) for members, _ in chains]


def _when(
    threads: np.ndarray, frames: Sequence[pd.DataFrame], is_meant: Callable[[str], object] | None = None
) -> Intervals:
    """When the threads are in anything of these tables whose name is meant; in anything at all without a test."""
    found = EMPTY
    for frame in frames:
        held = host_names.matches(frame["name"], is_meant) if is_meant else np.ones(len(frame), dtype=bool)
        if held.any():
            found = found | of_rows(frame, held & np.isin(array_of(frame, "thread"), threads))
    return found


def _one_chain(trace: RankTrace, ops: pd.DataFrame, threads: np.ndarray, number: int) -> tuple[Tables, np.ndarray]:
    """The chain's tables, segments numbered from `number`; of each row of `host` the launch that ends it, or -1."""
    calls, named = trace.api_calls, (trace.ranges, trace.host_ops)
    mine = np.isin(array_of(calls, "thread"), threads)
    starts = array_of(calls, "start_ns")
    exchanges = cpu_collectives(trace)
    exchanges = rows_where(exchanges, np.isin(array_of(exchanges, "thread"), threads))
    cuts = _cuts(trace, mine, exchanges)
    cut_starts, cut_ends = array_of(cuts, "start"), array_of(cuts, "end")
    begins = np.append(_begin(trace, threads), cut_ends)
    is_launch = np.zeros(len(calls) + 1, dtype=bool)
    is_launch[array_of(ops, "api_call")] = True
    launches = np.flatnonzero(is_launch[:-1] & mine)
    # A launch of another thread while this one is blocked belongs to the segment before.
    times = np.concatenate([starts[launches], cut_starts])
    segment = np.concatenate([np.searchsorted(begins[1:], starts[launches], side="right"), np.arange(len(cuts))])
    launch = np.concatenate([launches, np.full(len(cuts), NONE)])
    order = np.lexsort((launch == NONE, times, segment))
    times, segment, launch = times[order], segment[order], launch[order]
    is_first = np.append(True, segment[1:] != segment[:-1])[: len(segment)]
    since = np.where(is_first, begins[segment], np.append(0, times[:-1])[: len(times)])
    until = np.maximum(times, since)
    made_meanwhile = _when(threads, named, host_names.is_loader_of_workers).covered_ns(since, until)
    was_blocked = np.append(False, cut_ends - cut_starts > LATENCY_NS)
    host = table_of(
        {
            "segment": segment + number,
            "ns": until - since,
            DATA.column: _when(threads, named, host_names.is_data).covered_ns(since, until),
            MEMORY: _when(threads, [calls], host_names.is_memory_call).covered_ns(since, until),
            "recorded": recorded_calls(trace, threads, since, until),
            "takes_up": stretches_taken_up(made_meanwhile, is_first & was_blocked[segment]),
            # A stretch over the end of a step is of the one that holds most of it.
            "step": _step_of(trace, since + (until - since) // 2),
            "is_launch": launch != NONE,
        }
    )
    names: Any = column_of(calls, "name")
    call = np.append(NONE, np.append(names.codes, NONE)[array_of(cuts, "call")])
    segments = table_of(
        {
            "begin_ns": begins,
            "before": np.append(NONE, number + np.arange(len(cuts))),
            "own_ns": np.append(0, np.minimum(cut_ends - cut_starts, LATENCY_NS)),
            "step": _step_of(trace, begins),
            "call": np.array([*names.categories, ""], dtype=object)[call],
        }
    )
    blocks, meetings = _blocks(trace, ops, cuts, number), _meetings(trace, exchanges, cuts, number)
    return (host, segments, blocks, meetings), launch


def _begin(trace: RankTrace, threads: np.ndarray) -> int:
    """When the first thing is recorded of the threads; a range, as of a step, may begin before any call in it."""
    frames = (trace.api_calls, trace.host_ops, trace.ranges)
    starts = [array_of(frame, "start_ns")[np.isin(array_of(frame, "thread"), threads)] for frame in frames]
    return int(min(own.min() for own in starts if len(own)))


def _step_of(trace: RankTrace, times: np.ndarray) -> np.ndarray:
    row = step_at(*host_spans(trace.steps), times)
    steps: np.ndarray = np.append(array_of(trace.steps, "step"), NONE)[row]
    return steps


def _meetings(trace: RankTrace, exchanges: pd.DataFrame, cuts: pd.DataFrame, number: int) -> pd.DataFrame:
    places = {name: np.full(len(exchanges), NONE) for name in ("begins", "segment")}
    for name, what in zip(places, (HANDS_OVER, PEERS), strict=True):
        found = np.flatnonzero(cuts["what"] == what)
        places[name][array_of(cuts, "exchange")[found]] = number + found + 1
    times = exchanges[["start_ns", "end_ns", "name"]]
    table = times.assign(step=_step_of(trace, array_of(times, "start_ns")), **places)
    return picked(table, places["begins"] != NONE)


# Where a chain of the host is cut: the calls that block it and its CPU's collectives, and what each waits for.


OWN, QUEUE, HANDS_OVER, PEERS = "own", "queue", "hands over", "peers"
"""What the host waits for where it is cut, beside `host_names.waits_for`: its own copy, room in the queue; nothing, for
it hands a collective to another thread of the CPU; such a collective."""


def _cuts(trace: RankTrace, mine: np.ndarray, exchanges: pd.DataFrame) -> pd.DataFrame:
    """The chain's calls that block it, and begins and ends of its CPU's collectives, in order, none inside another.

    Returns:
        `call` (row in `api_calls`, or -1), `what` (is waited for), `start` (when the host's work ends), `end` (when it
        goes on), `exchange` (row of the CPU's collective, or -1).
    """
    calls = trace.api_calls
    what = by_category(column_of(calls, "name"), host_names.waits_for)
    for rows, waits_for in ((blocking(trace)[0], OWN), (np.flatnonzero(into_full_queue(trace)), QUEUE)):
        what[rows[pd.isna(what[rows])]] = waits_for
    rows = np.flatnonzero(~pd.isna(what) & mine)
    called, since, done = (array_of(exchanges, name) for name in ("start_ns", "since_ns", "end_ns"))
    number = np.arange(len(exchanges))
    of_calls = {"start": array_of(calls, "start_ns")[rows], "end": array_of(calls, "end_ns")[rows]}
    cuts = under_each_other(
        [
            pd.DataFrame({"call": rows, "what": what[rows], **of_calls, "exchange": NONE}),
            pd.DataFrame({"call": NONE, "what": HANDS_OVER, "start": called, "end": called, "exchange": number}),
            pd.DataFrame({"call": NONE, "what": PEERS, "start": since, "end": done, "exchange": number}),
        ]
    )
    cuts = cuts[(cuts["what"] != PEERS) | (cuts["end"] > cuts["start"])].sort_values(["start", "end"])
    reach = cuts["end"].cummax().shift(fill_value=np.iinfo(np.int64).min)
    cuts = cuts[cuts["start"] >= reach]
    begun = cuts["exchange"][cuts["what"] == HANDS_OVER]
    return cuts[(cuts["what"] != PEERS) | cuts["exchange"].isin(begun)].reset_index(drop=True)


def _blocks(trace: RankTrace, ops: pd.DataFrame, cuts: pd.DataFrame, number: int) -> pd.DataFrame:
    """For each blocking call the operations whose end lets it return, as far as the recorded times agree."""
    op_ends = array_of(ops, "start_ns") + array_of(ops, "duration_ns")
    pairs = (_synchronised(trace, ops, cuts, op_ends), _own_copies(trace, ops, cuts, op_ends), _queued(cuts, op_ends))
    op, cut = (np.concatenate(each) for each in zip(*pairs, strict=True))
    is_own = np.repeat([False, True, False], [len(own) for own, _ in pairs])
    return table_of({"op": op, "segment": number + cut + 1, "is_own": is_own})


Pairs = tuple[np.ndarray, np.ndarray]
"""Operations, and the cuts that wait for them."""


def _synchronised(trace: RankTrace, ops: pd.DataFrame, cuts: pd.DataFrame, op_ends: np.ndarray) -> Pairs:
    """What calls wait for that wait for all streams, a stream or an event."""
    rows = np.flatnonzero(~cuts["what"].isin((OWN, QUEUE, HANDS_OVER, PEERS)))
    what, starts, ends = (cuts[name].to_numpy()[rows] for name in ("what", "start", "end"))
    call, stream = array_of(ops, "api_call"), array_of(ops, "stream")
    long_ago = np.iinfo(np.int64).min
    launched = np.where(call == NONE, long_ago, np.append(array_of(trace.api_calls, "start_ns"), 0)[call])
    last = _last_of_streams(stream, launched, starts)
    # An event may have been recorded long before the call: what stands after it in its stream ends later.
    is_event = (what == host_names.FOR_EVENT)[:, None]
    last = np.where(is_event, np.minimum(last, _last_of_streams(stream, op_ends, ends + 1)), last)
    last_ends = np.append(op_ends, 0)[last]
    fits = (last != NONE) & (last_ends <= ends[:, None])
    # One stream or event: the latest launched when the call returned at once, else what ended last.
    was_blocked = (ends - starts > LATENCY_NS)[:, None]
    score = np.where(fits, np.where(was_blocked, last_ends, np.append(launched, 0)[last]), long_ago)
    is_one = np.arange(last.shape[1]) == (score.argmax(axis=1) if score.size else rows)[:, None]
    is_for_all = (what == host_names.FOR_ALL)[:, None]
    cut, column = np.nonzero(fits & (is_for_all | is_one) & (~is_event | was_blocked))
    return last[cut, column], rows[cut]


def _last_of_streams(stream: np.ndarray, moments: np.ndarray, times: np.ndarray) -> np.ndarray:
    """For each time and stream the last operation whose moment (launch, end) came before, or -1."""
    streams = rows_of_each(stream)
    last = np.full((len(times), len(streams)), NONE, dtype=np.int64)
    for column, rows in enumerate(streams):
        place = np.searchsorted(np.maximum.accumulate(moments[rows]), times)
        last[:, column] = np.where(place > 0, rows[0] + place - 1, NONE)
    return last


def _own_copies(trace: RankTrace, ops: pd.DataFrame, cuts: pd.DataFrame, op_ends: np.ndarray) -> Pairs:
    """Blocking copies: such a call waits for the operation that it launched."""
    own = np.flatnonzero(cuts["what"] == OWN)
    cut_of_call = np.full(len(trace.api_calls) + 1, NONE)
    cut_of_call[array_of(cuts, "call")[own]] = own
    cut = cut_of_call[array_of(ops, "api_call")]
    op = np.flatnonzero((cut != NONE) & (op_ends <= np.append(array_of(cuts, "end"), 0)[cut]))
    return op, cut[op]


def _queued(cuts: pd.DataFrame, op_ends: np.ndarray) -> Pairs:
    """Launches into a full queue: the operation that ended last before the call returned made room."""
    rows = np.flatnonzero(cuts["what"] == QUEUE)
    order = np.argsort(op_ends, kind="stable")
    place = np.searchsorted(op_ends[order], array_of(cuts, "end")[rows], side="right") - 1
    held = (place >= 0) & (np.append(op_ends[order], 0)[place] > array_of(cuts, "start")[rows])
    return order[place[held]], rows[held]
