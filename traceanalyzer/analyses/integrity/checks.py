"""What can be wrong with one rank's trace, check by check."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.calls import INFERRED, OPERATOR
from traceanalyzer.analyses.communication.matching import waits_of
from traceanalyzer.analyses.grouping import largest_before, memoized_by_trace
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.time.steps import is_complete
from traceanalyzer.kinds import WAIT_ONLY
from traceanalyzer.meaning.vocabulary import HIGH, INFO, LOW, MEDIUM, Severity, part_of
from traceanalyzer.model import RankTrace
from traceanalyzer.model.make import LONGEST_CAPTURE_NS, is_outside
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, lengths_of, rows_named, rows_where
from traceanalyzer.selection import A_SAMPLE, is_lost_launch

_MANY, SOME = 0.1, 0.01
"""Shares from which a defect is medium, and low."""

GRAVE = 0.05
"""Share of events with damaged times, or numbers that are not their own, from which figures are wrong."""

CAUSES: tuple[str, ...] = ("idle", "gaps", "launches", "queue_depth", "what_ran", "replay")
"""What sets operations beside the calls that launched them."""

_LISTED: tuple[str, ...] = ("kernels", "calls", "stream_pairs", "blocks", "categories")
BY_KIND: tuple[str, ...] = ("breakdown", "overlap", "steps", *_LISTED)
"""What tells kinds of operations apart; of the first three, what unknown kinds leave open is absent."""

_BY_LAUNCH: tuple[str, ...] = (*CAUSES, "steps", "phase_of_op", "tree")
"""What takes an operation's step and phase from the call that launched it."""

OPERATIONS: tuple[str, ...] = ("gpu_ops",)

TRUNCATED = "truncated"

LOST_AMID = "lost_amid_others"

WITHOUT_LAUNCH = "operations_without_launch"

LOST_GRAPHS = "graphs_without_operations"

NESTED = "nested_on_a_stream"

FAR_APART = "far_apart"

OUTSIDE = "outside_the_recording"

NO_DURATION = "operations_without_duration"
TOO_SHORT = "kernels_too_short"
OTHER_UNIT = "another_unit"
BACKWARDS = "events_backwards"
UNREADABLE = "unreadable_events"
SHARED = "shared_launches"
OUT_OF_ORDER = "launches_out_of_order"

EVENTS: Final = "events"
"""Stands for all tables of events."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that is wrong.

    Attributes:
        check: name of the check.
        severity: high, medium, low or info.
        count: how many events it concerns; with 0 nothing is wrong, and it is left out.
        total: of how many; `None` where that says nothing.
        sentence: what it is, for people.
        affects: where it begins: analyses, what they share, event tables or `EVENTS`; what rests on these, the
            registry knows (`dependencies.reached_by`).
    """

    check: str
    severity: Severity
    count: int
    total: int | None
    sentence: str
    affects: tuple[str, ...]


def file_damage(trace: RankTrace) -> list[Defect]:
    """Files cut off while they were written, and events that could not be read."""
    cut_off = (
        "The file is cut off: what came after its end is missing, with it GPU operations of any step. No step can be "
        "shown to be complete, so that headlines are of all that is left."
    )
    skipped, backwards = trace.meta.events_skipped, trace.meta.events_backwards
    unread = (
        f"{many(skipped, 'event')} could not be read, or {have(skipped)} times that cannot be, and {_are(skipped)} "
        "left out."
    )
    ended = (
        f"{many(backwards, 'event')} ended before {'it' if backwards == 1 else 'they'} started: no time is counted "
        "there."
    )
    tables = (trace.gpu_ops, trace.api_calls, trace.host_ops, trace.ranges)
    grave = GRAVE * sum(map(len, tables))  # those that are left out are in no table
    return [
        Defect(TRUNCATED, HIGH, int(trace.meta.is_truncated), None, cut_off, (EVENTS,)),
        Defect(UNREADABLE, HIGH if skipped >= grave else MEDIUM, skipped, None, unread, (EVENTS,)),
        Defect(BACKWARDS, HIGH if backwards >= grave else MEDIUM, backwards, None, ended, (EVENTS,)),
    ]


def dropped_events(trace: RankTrace) -> list[Defect]:
    """Events that the profiler itself says it dropped, beyond the launches whose operation is missing."""
    count, missing = trace.meta.events_dropped, int(is_lost_launch(trace.api_calls).sum())
    is_explained = count <= missing
    text = f"The profiler dropped {many(count, 'event')}" + (
        ": launches without an operation say where."
        if is_explained
        else f", of which {many(missing, 'launch', 'launches')} without an operation {_are(missing)} all that shows."
    )
    affects = OPERATIONS if is_explained else (EVENTS,)
    return [Defect("dropped_events", INFO if is_explained else MEDIUM, count, None, text, affects)]


def launches_without_operation(trace: RankTrace) -> list[Defect]:
    """Kernel launches that no GPU operation of the process answers. Their steps are partial: headlines lack those."""
    calls = trace.api_calls
    is_launch = host_names.matches(calls["name"], host_names.is_launch)
    if trace.gpu_ops.empty or not is_launch.any():
        return []
    lost, total = int(is_lost_launch(calls).sum()), int(is_launch.sum())
    text = (
        f"{part_of(lost, total, 'launch', 'launches')} on the host {have(lost)} no GPU operation in the capture: "
        "work is missing, or was recorded elsewhere; "
    )
    has_complete = not _complete_steps(trace).empty
    text += "the steps concerned are partial and left out of means." if has_complete else "no step is complete."
    severity = by_share(lost, total) if has_complete else MEDIUM
    return [Defect("launches_without_operation", severity, lost, total, text, OPERATIONS)] if lost else []


def lost_amid_others(trace: RankTrace) -> list[Defect]:
    """Launches without an operation between launches that have one: no edge of the recording explains them."""
    calls = trace.api_calls
    is_launch = host_names.matches(calls["name"], host_names.is_launch)
    lost = is_lost_launch(calls)
    answered = np.flatnonzero(is_launch & array_of(calls, "has_gpu_op"))
    if not lost.any() or not len(answered):
        return []
    begin, end = answered[[0, -1]]
    count, total = int(lost[begin:end].sum()), int((is_launch | lost)[begin : end + 1].sum())
    text = (
        f"{part_of(count, total, 'launch', 'launches')} amid recorded ones {have(count)} no GPU operation: the "
        "profiler lost them, and where the GPU seems idle it may have worked."
    )
    return [Defect(LOST_AMID, by_share(count, total), count, total, text, (EVENTS,))]


def lost_graphs(trace: RankTrace) -> list[Defect]:
    """Launches of CUDA graphs among those without an operation: nothing of what such a graph runs was recorded."""
    lost = is_lost_launch(trace.api_calls)
    count = int((lost & host_names.matches(trace.api_calls["name"], host_names.is_graph_launch)).sum())
    text = (
        f"{many(count, 'launch', 'launches')} of CUDA graphs {have(count)} no operation in the capture: what the "
        "graphs ran was not recorded."
    )
    return [Defect(LOST_GRAPHS, INFO, count, int(lost.sum()), text, OPERATIONS)]


def operations_without_launch(trace: RankTrace) -> list[Defect]:
    """GPU operations whose host call the capture does not have; grave where headlines hold many of them."""
    total = len(trace.gpu_ops)
    is_without = array_of(trace.gpu_ops, "launch") == NONE
    count = int(is_without.sum())
    held = _in_headline(trace)
    inside = int((is_without & held).sum())
    is_unnumbered = 2 * int((is_without & ~(trace.gpu_ops["correlation"] > 0).to_numpy()).sum()) > count
    is_of_others = count == total and bool(is_lost_launch(trace.api_calls).any())
    why = "no call bears their numbers" if is_of_others else "queued before it began"
    why = "they do not say which call launched them" if is_unnumbered else why
    why = why if len(trace.api_calls) else "no API call was recorded"
    text = (
        f"{part_of(count, total, 'GPU operation')} {have(count)} no launch in the capture ({why}): they belong to "
        "no step and no phase, and idle time before them has no known cause"
    )
    has_complete = not _complete_steps(trace).empty
    if has_complete:
        text += f"; {inside:,} of them {'runs' if inside == 1 else 'run'} inside complete steps"
    severity = by_share(inside, int(held.sum()))
    affects: tuple[str, ...] = (*CAUSES, "phase_of_op", "tree")
    affects = (*affects, "steps") if has_complete else affects
    return [Defect(WITHOUT_LAUNCH, severity, count, total, f"{text}.", affects)]


def shared_launches(trace: RankTrace) -> list[Defect]:
    """Operations that name one launch, graphs aside, or a number that several calls bear: it is not unique then."""
    launch = array_of(trace.gpu_ops, "launch")
    calls = launch[launch != NONE]
    is_graph = host_names.matches(trace.api_calls["name"], host_names.is_graph_launch)
    times = np.bincount(calls, minlength=len(trace.api_calls))
    kernels = np.bincount(
        launch[(launch != NONE) & rows_named(trace.gpu_ops, "activity", "kernel")], minlength=len(times)
    )
    bears_anothers = _bears_anothers_number(trace.api_calls)
    count, total = int(times[((times > 1) & ~is_graph) | bears_anothers].sum()), len(calls)
    text = (
        f"{part_of(count, total, 'GPU operation')} share their launch with others: correlation numbers are used "
        "more than once (work of several processes in one file does so), and which call launched what, in which step, "
        "is not known."
    )
    # One call may copy a batch, and launches one kernel.
    repeated = times[((kernels > 1) & ~is_graph) | bears_anothers].sum()
    severity = HIGH if repeated >= max(1, GRAVE * total) else by_share(count, total)
    return [Defect(SHARED, severity, count, total, text, _BY_LAUNCH)]


def launches_out_of_order(trace: RankTrace) -> list[Defect]:
    """Operations whose launch had returned before that of the one ahead on their stream began: a stream keeps order.

    No difference of clocks makes any. Launches of several operations are those of CUDA graphs, or shared.
    """
    ops, calls = trace.gpu_ops, trace.api_calls
    launch, streams = array_of(ops, "launch"), array_of(ops, "stream")
    times = np.bincount(launch[launch != NONE], minlength=len(calls) + 1)
    single = np.flatnonzero((launch != NONE) & (times[launch] == 1))
    order = single[np.lexsort((launch[single], array_of(ops, "start_ns")[single], streams[single]))]
    begins, ends = (array_of(calls, name)[launch[order]] for name in ("start_ns", "end_ns"))
    count = int(((ends[1:] < begins[:-1]) & (np.diff(streams[order]) == 0)).sum())
    text = (
        f"{part_of(count, len(order), 'GPU operation')} {start(count)} after an operation of the same stream that was "
        "launched later: correlation numbers are not their own, and which call launched what, in which step, is not "
        "known."
    )
    severity = HIGH if count >= GRAVE * len(order) else by_share(count, len(order))
    return [Defect(OUT_OF_ORDER, severity, count, len(order), text, _BY_LAUNCH)]


def _bears_anothers_number(api_calls: pd.DataFrame) -> np.ndarray:
    """Mask of calls whose number another one, before or after them, has; calls inside each other bear one."""
    number, starts, ends = (array_of(api_calls, name) for name in ("correlation", "start_ns", "end_ns"))
    order = np.lexsort((starts, number))
    is_again = (np.diff(number[order]) == 0) & (starts[order][1:] >= ends[order][:-1]) & (number[order][1:] > 0)
    mask = np.zeros(len(api_calls), dtype=bool)
    mask[order[1:][is_again]] = mask[order[:-1][is_again]] = True
    return mask


def partial_steps(trace: RankTrace) -> list[Defect]:
    """Steps that the capture cuts; those of a file that is cut off go with that."""
    if trace.meta.is_truncated:
        return []
    count, total = int(trace.steps["is_partial"].sum()) if len(trace.steps) else 0, len(trace.steps)
    text = f"{many(count, 'step')} of {total} {_are(count)} partial: shown, but left out of means"
    is_none = _complete_steps(trace).empty
    text += "; none is complete, so that headlines are of the whole capture." if is_none else "."
    return [Defect("partial_steps", MEDIUM if is_none else LOW, count, total, text, ("steps",))]


def cuda_graphs(trace: RankTrace) -> list[Defect]:
    """CUDA graphs: captured during the recording, replayed, or recorded as one operation of unknown content."""
    calls, ops = trace.api_calls, trace.gpu_ops
    captures = int(host_names.matches(calls["name"], host_names.is_graph_capture).sum())
    unknown = int(rows_named(ops, "activity", "graph").sum())
    nodes = int(ops["graph_node"].notna().sum())
    captured = f"{many(captures, 'call')} of graph capture: what is launched inside runs later, as part of a replay."
    whole = f"{many(unknown, 'CUDA graph')} recorded as a whole: busy time is right, the kernels inside are unknown."
    replayed = f"{many(nodes, 'operation')} ran in CUDA graphs: one launch stands for many, operators are unknown."
    return [
        Defect("graph_captures", INFO, captures, None, captured, ("launches",)),
        Defect("graphs_of_unknown_content", MEDIUM, unknown, len(ops), whole, _LISTED),
        Defect("graph_operations", INFO, nodes, len(ops), replayed, ("launches", "phases")),
    ]


@memoized_by_trace
def _complete_steps(trace: RankTrace) -> pd.DataFrame:
    """The complete steps among those that are looked at."""
    steps = trace.steps if trace.window.steps is None else trace.steps[trace.steps["step"].isin(trace.window.steps)]
    return rows_where(steps, is_complete(steps)) if len(steps) else steps


def _in_headline(trace: RankTrace) -> np.ndarray:
    """GPU operations that run, at least in part, in what headlines are of: complete steps, else the window."""
    steps, ops = _complete_steps(trace), trace.gpu_ops
    starts, ends = (array_of(ops, name) for name in ("start_ns", "end_ns"))
    if steps.empty:
        mask: np.ndarray = trace.window.touched(starts, ends) != NONE
        return mask
    first, last = (steps[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    # The windows are disjoint and in order: those that end after the operation's start begin before its end, or not.
    following = np.searchsorted(last, starts, side="right")
    held: np.ndarray = np.append(first, np.iinfo(np.int64).max)[following] < ends
    return held


def by_share(count: int, total: int) -> Severity:
    """How severe a defect is that this share of the events have."""
    return MEDIUM if count and count >= _MANY * total else LOW if count and count >= SOME * total else INFO


def many(count: int, noun: str, plural: str | None = None) -> str:
    """`1 call`, `1,200 calls`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def have(count: int) -> str:
    """The verb of so many."""
    return "has" if count == 1 else "have"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def start(count: int) -> str:
    """Another verb of so many."""
    return "starts" if count == 1 else "start"


def arguments_of_calls(calls: pd.DataFrame) -> list[Defect]:
    """Communication kernels without arguments of their own or of a host call: none, an operator's, a later step's."""
    if calls.empty:
        return []
    arguments = calls["arguments"]
    is_kernel = ((calls["collective"] != "peer_copy") & (waits_of(calls) != WAIT_ONLY)).to_numpy()
    without, total = int(arguments.isna().to_numpy()[is_kernel].sum()), int(is_kernel.sum())
    of_operator, inferred = int((arguments == OPERATOR).sum()), int((arguments == INFERRED).sum())
    unknown = (
        f"{part_of(without, total, 'communication operation')} {have(without)} no arguments: process group and sizes "
        "are unknown, bandwidths leave them out."
    )
    operators = (
        f"The sizes of {many(of_operator, 'communication operation')} are those of the operators that launched them; "
        "their process groups are not known."
    )
    later = f"The arguments of {many(inferred, 'communication operation')} are inferred from later steps."
    affects = ("calls",)
    return [
        Defect("communication_without_arguments", by_share(without, total), without, total, unknown, affects),
        Defect("arguments_of_operators", INFO, of_operator, len(calls), operators, affects),
        Defect("inferred_arguments", INFO, inferred, len(calls), later, affects),
    ]


_MOST_OF_LINK = 2
"""Times a link's peak: switches that add up or copy on the way halve what a rank sends, and busbw does not know it."""

_MOST_GBPS = 16_000
"""What a rank sends comes out of its GPU's memory: 8 TB/s of the fastest (B200, MI355X), and busbw counts it twice."""


def impossible_memory_levels(trace: RankTrace) -> list[Defect]:
    """Moments at which the allocator had given out more than it held, or less than nothing."""
    counters = trace.counters
    masks = [rows_named(counters, "name", name) for name in ("memory_allocated_bytes", "memory_reserved_bytes")]
    times = [array_of(counters, "time_ns")[mask] for mask in masks]
    allocated, reserved = (array_of(counters, "value")[mask] for mask in masks)
    total = len(allocated)
    if not total or not np.array_equal(*times):
        return []
    count = int(((allocated > reserved) | (allocated < 0)).sum())
    text = (
        f"At {many(count, 'moment')} of {total:,} the allocator had given out more memory than it held, or less than "
        "none: no allocator does; the levels are damaged, or of two allocators."
    )
    return [Defect("impossible_memory_levels", MEDIUM, count, total, text, ("counters",))]


def impossible_bandwidths(collectives: pd.DataFrame) -> list[Defect]:
    """Rows of `collectives` that are faster than twice their links, or, of unknown links, than any GPU's memory."""
    if collectives.empty:
        return []
    rate = collectives["busbw_gbps"].astype("Float64")
    most = (_MOST_OF_LINK * collectives["link_peak_gbps"].astype("Float64")).fillna(_MOST_GBPS)
    beyond = collectives[(rate > most).fillna(value=False)]
    if beyond.empty:
        return []
    fastest = beyond.loc[rate[beyond.index].idxmax()]
    text = (
        f"Collectives are faster than any link or memory: {fastest['collective']} of rank {fastest['rank']} at "
        f"{fastest['busbw_gbps']:,.0f} GB/s. Their sizes or times are damaged, or clocks differ: believe no bandwidth."
    )
    affects = ("collectives", "by_collective", "nccl", "comm_phases")
    return [Defect("impossible_bandwidths", MEDIUM, len(beyond), len(collectives), text, affects)]


_NOT_SHORT_NS = 5_000
"""Operations that usually take so long are not rounded to nothing, not even in whole microseconds."""

_SHORTEST_NS = 100
"""An empty kernel runs for some 700 ns on an H200."""


def far_apart(trace: RankTrace) -> list[Defect]:
    """Operations that lie further apart than any recording lasts: single times are damaged."""
    begin, end = int(array_of(trace.gpu_ops, "start_ns")[0]), int(array_of(trace.gpu_ops, "end_ns").max())
    if end - begin <= LONGEST_CAPTURE_NS:
        return []
    text = (
        f"The operations span {(end - begin) / 3.6e12:,.0f} hours, longer than any recording lasts: times of some are "
        "damaged, or the file holds two recordings."
    )
    return [Defect(FAR_APART, HIGH, 1, None, text, (EVENTS,))]


def outside(trace: RankTrace) -> list[Defect]:
    """Some operations of a recording, and more than a few, that ran when it did not: times of one part are damaged.

    Where it is all of them, the GPU's clock is another than the recorder's.
    """
    is_odd = is_outside(array_of(trace.gpu_ops, "start_ns"), (trace.meta.capture_start_ns, trace.meta.capture_end_ns))
    count, total = int(is_odd.sum()), len(is_odd)
    text = (
        f"{part_of(count, total, 'operation')} {start(count)} more than 10 s before the recording began or after it "
        "ended, as the file says itself: their times are damaged, or the file holds two recordings."
    )
    return [Defect(OUTSIDE, HIGH, count, total, text, (EVENTS,))] if 0 < count < total else []


def too_short(trace: RankTrace) -> list[Defect]:
    """Kernels that usually take less time than a GPU needs for the smallest: the unit of times is mistaken."""
    lengths = lengths_of(trace.gpu_ops)[rows_named(trace.gpu_ops, "activity", "kernel")]
    lengths = lengths[lengths > 0]
    if len(lengths) < A_SAMPLE or np.median(lengths) >= _SHORTEST_NS:
        return []
    count = int((lengths < _SHORTEST_NS).sum())
    text = (
        f"{count:,} kernels of {len(lengths):,} run for less than {_SHORTEST_NS} ns, which no GPU does: times are in "
        "another unit than the file says (too short by 1,000 times?), and so are all that are shown."
    )
    return [Defect(TOO_SHORT, HIGH, count, len(lengths), text, (EVENTS,))]


def overlaps_on_a_stream(trace: RankTrace) -> list[Defect]:
    """Operations that start before an earlier one of their stream has ended: a stream runs one after the other."""
    ops = _one_after_the_other(trace.gpu_ops)
    starts, ends, stream = (array_of(ops, name) for name in ("start_ns", "end_ns", "stream"))
    order = np.lexsort((ends, starts, stream))
    count = int((starts[order] < largest_before(ends[order], stream[order])).sum())
    text = (
        f"{many(count, 'operation')} {start(count)} before an earlier one on the same stream has ended (programmatic "
        "dependent launches do; else the times are inexact): sums of durations exceed the time that has passed."
    )
    severity = by_share(count, len(ops))
    return [Defect("overlaps_on_a_stream", severity, count, len(ops), text, ("kernels", "streams"))]


def nested_on_a_stream(trace: RankTrace) -> list[Defect]:
    """Operations that run wholly inside an earlier one of their stream: no stream runs so, early launches included.

    A dependent launch may begin early, but ends after what it depends on. The operations of a CUDA graph may run side
    by side, whatever stream they are recorded on.
    """
    ops = _one_after_the_other(trace.gpu_ops)
    ops = rows_where(ops, ops["graph_node"].isna().to_numpy())
    starts, ends, stream = (array_of(ops, name) for name in ("start_ns", "end_ns", "stream"))
    order = np.lexsort((-ends, starts, stream))
    lengths, latest = (ends - starts)[order], largest_before(ends[order], stream[order])
    is_nested = (starts[order] < latest) & (ends[order] <= latest) & (lengths > 0)
    count = int(is_nested.sum())
    is_grave = count >= SOME * len(ops) or lengths[is_nested].sum() >= SOME * lengths.sum()
    text = (
        f"{part_of(count, len(ops), 'operation')} run{'s' if count == 1 else ''} inside an earlier one of the same "
        "stream, which runs one after the other: durations are damaged, streams have lost their numbers, or the file "
        "holds the work of several processes."
    )
    return [Defect(NESTED, HIGH if is_grave else INFO, count, len(ops), text, (EVENTS,))]


def _one_after_the_other(ops: pd.DataFrame) -> pd.DataFrame:
    """All but copies from one memory of the host to another: the driver makes them with the CPU, beside the stream."""
    is_of_host = (rows_named(ops, name, "pageable", "pinned") for name in ("source_memory", "target_memory"))
    return rows_where(ops, ~np.logical_and(*is_of_host))


def operations_without_duration(trace: RankTrace) -> list[Defect]:
    """Operations that end where they start, or before (a reader takes negative durations for none).

    Grave where half have none, or too many whose name's others usually take 5 µs and more.
    """
    took, names = lengths_of(trace.gpu_ops), trace.gpu_ops["name"].array.codes
    is_none, total = took <= 0, len(took)
    count = int(is_none.sum())
    usual = pd.Series(took[~is_none]).groupby(names[~is_none]).median().reindex(names[is_none])
    text = f"{many(count, 'GPU operation')} {have(count)} no duration, or had a negative one: their time is missing."
    is_grave = count > 0 and (2 * count >= total or int((usual >= _NOT_SHORT_NS).sum()) >= GRAVE * total)
    return [Defect(NO_DURATION, HIGH if is_grave else by_share(count, total), count, total, text, OPERATIONS)]


def operations_before_their_launch(trace: RankTrace) -> list[Defect]:
    """Operations that start before the call that launched them: the clocks of host and GPU disagree."""
    launch = array_of(trace.gpu_ops, "launch")
    held = launch != NONE
    early = array_of(trace.gpu_ops, "start_ns")[held] < array_of(trace.api_calls, "start_ns")[launch[held]]
    count, total = int(early.sum()), int(held.sum())
    text = (
        f"{many(count, 'GPU operation')} {start(count)} before the call that launched them: the clocks of host and "
        "GPU disagree, and causes of idle time are inexact."
    )
    return [Defect("operations_before_their_launch", by_share(count, total), count, total, text, CAUSES)]


SHIFTED = "shifted_steps"
"""The check that finds that they do not."""

_NEARLY_ALL = 0.9
"""Of a rank's calls: so many lie as many steps away from the others'. Calls of two steps may meet by mistake."""

_LEAST_CALLS = 3


def shifted(call_waits: pd.DataFrame) -> list[Defect]:
    """Ranks whose numbers of steps differ by the same from those of the ranks that they share calls with.

    Args:
        call_waits: the Result's table.
    """
    if call_waits.empty:
        return []
    known = call_waits.loc[call_waits["instance"].notna() & call_waits["step"].notna(), ["instance", "rank", "step"]]
    first = known.sort_values("rank", kind="stable").drop_duplicates("instance").set_index("instance")
    of_base = first.reindex(known["instance"])
    calls = known.assign(base=of_base["rank"].to_numpy(), by=known["step"].array - of_base["step"].array)
    calls = calls[calls["rank"] != calls["base"]]
    counts = calls.groupby(["rank", "base", "by"]).size()
    total = counts.groupby(["rank", "base"]).transform("sum")
    held = counts[
        (counts >= (_NEARLY_ALL * total).clip(lower=_LEAST_CALLS)) & (counts.index.get_level_values("by") != 0)
    ]
    if held.empty:
        return []
    rank, base, by = held.index[0]
    count = held.index.get_level_values("rank").nunique()
    more = f" So it is with {count - 1} more ranks." if count > 1 else ""
    text = (
        f"Rank {rank}'s numbers of steps are {abs(by)} {'higher' if by > 0 else 'lower'} than rank {base}'s for the "
        "same steps, as the calls that they share show: steps are compared by number, so that stragglers of a single "
        f"step are unknown.{more} Start the profiler in the same step on every rank."
    )
    return [Defect(SHIFTED, MEDIUM, count, None, text, ("steps",))]
