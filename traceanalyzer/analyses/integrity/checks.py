"""What can be wrong with one rank's trace, check by check."""

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.breakdown import is_complete
from traceanalyzer.analyses.communication.calls import comm_operators
from traceanalyzer.analyses.communication.matching import waits_of
from traceanalyzer.analyses.grouping import largest_before, sums_at
from traceanalyzer.analyses.host.host_names import (
    FOR_ALL,
    is_cpu_collective,
    is_graph_launch,
    is_launch,
    waits_for,
)
from traceanalyzer.analyses.statistics import LEAST_PCT, SHARE
from traceanalyzer.kinds import WAIT_ONLY, function_path
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import (
    HIGH,
    INFO,
    LOW,
    MEDIUM,
    MOST_PIECES,
    SHORT_NS,
    Severity,
    named,
    numbered,
)
from traceanalyzer.model import RankTrace
from traceanalyzer.model.make import LONGEST_CAPTURE_NS, is_outside
from traceanalyzer.model.schema import NONE, UNNAMED
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    lengths_of,
    rows_named,
    rows_named_so,
    rows_where,
)
from traceanalyzer.selection import A_SAMPLE, is_lost_launch

MANY, SOME = 0.1, LEAST_PCT / 100
"""Shares from which a defect is medium, and low."""

GRAVE = 0.05
"""Share of events with damaged times, or numbers that are not their own, from which figures are wrong."""

EVENTS: Final = "events"
"""Stands for all tables of events."""

CAUSES: tuple[str, ...] = ("idle", "gaps", "launches", "gpu_utilization", "what_ran", "replay")
"""What sets operations beside the calls that launched them."""

_LISTED: tuple[str, ...] = ("kernels", "calls", "stream_pairs", "block_bounds", "categories")
BY_KIND: tuple[str, ...] = ("breakdown", "steps", *_LISTED)
"""What tells kinds of operations apart; of the first three, what unknown kinds leave open is absent."""

_BY_LAUNCH: tuple[str, ...] = (*CAUSES, "steps", "phase_of_op", "tree")
"""What takes an operation's step and phase from the call that launched it."""

OPERATIONS: tuple[str, ...] = ("gpu_ops",)

TRUNCATED, LOST_AMID, LOST_GRAPHS = "truncated", "lost_amid_others", "graphs_without_operations"
NESTED, FAR_APART, OUTSIDE = "nested_on_a_stream", "far_apart", "outside_the_recording"
NO_DURATION, TOO_SHORT, OTHER_UNIT = "operations_without_duration", "kernels_too_short", "another_unit"
BACKWARDS, UNREADABLE = "events_backwards", "unreadable_events"
SHARED, OUT_OF_ORDER, SHIFTED = "shared_launches", "launches_out_of_order", "shifted_steps"


UNTRUE: Mapping[str, str] = MappingProxyType(
    {
        NESTED: "operations run inside others of their stream, which runs one after the other",
        FAR_APART: "operations lie over a day apart",
        OUTSIDE: "operations lie outside of the recording",
        NO_DURATION: "operations take no time",
        TOO_SHORT: "kernels run for less time than any GPU needs",
        OTHER_UNIT: "times are in another unit than those of the other ranks",
        BACKWARDS: "events end before they start",
        UNREADABLE: "those of many events are no numbers, or none that can be",
        SHARED: "operations share the numbers of their launches",
        OUT_OF_ORDER: "operations of one stream run in another order than they were launched in",
    }
)
"""Checks that find times that cannot be, or that it is not known which call launched what; and what these are."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that is wrong.

    Attributes:
        check: name of the check.
        count: how many events it concerns; with 0 nothing is wrong, and it is left out.
        total: of how many; `None` where that says nothing.
        sentence: what it is, for people.
        affects: where it begins: analyses, what they share, event tables or `EVENTS`; what rests on these, the
            registry knows (`dependencies.reached_by`).
        severity: high, medium, low or info; by the share of the total unless said.
    """

    check: str
    count: int
    total: int | None
    sentence: str
    affects: tuple[str, ...] = (EVENTS,)
    severity: Severity | None = None

    @classmethod
    def where(
        cls,
        check: str,
        mask: Any,
        sentence: str,
        affects: tuple[str, ...] = (EVENTS,),
        severity: Severity | None = None,
        grave_from: float = math.inf,
    ) -> Self:
        """The events for which the mask holds: `{}` in the sentence is `12 of 3,400`.

        From the share `grave_from` of them on it is high, whatever the severity.
        """
        count, total = int(np.count_nonzero(mask)), len(mask)
        severity = HIGH if count >= grave_from * total else severity
        return cls(check, count, total, sentence.format(f"{count:,} of {total:,}"), affects, severity)

    @property
    def gravity(self) -> Severity:
        """The severity."""
        return self.severity or severity_of(self.count / (self.total or 1), (MEDIUM, LOW, INFO))


def severity_of(share: float, of: tuple[Severity, Severity, Severity] = (HIGH, MEDIUM, LOW)) -> Severity:
    """The first of the severities for a share that is large, the second for one that is not small, else the third."""
    return of[0] if share >= MANY else of[1] if share >= SOME else of[2]


def file_damage(trace: RankTrace) -> Iterator[Defect]:
    """Files cut off while they were written, and events that could not be read."""
    meta = trace.meta
    total = sum(map(len, (trace.gpu_ops, trace.api_calls, trace.host_ops, trace.ranges)))
    text = (
        "The file is cut off: events after its end are missing, among them GPU operations of any step. No step counts "
        "as complete; headlines cover what is left."
    )
    yield Defect(TRUNCATED, int(meta.is_truncated), None, text, severity=HIGH)
    for check, count, text in (
        (UNREADABLE, meta.events_skipped, "Events left out, as they could not be read or have impossible times: {:,}."),
        (BACKWARDS, meta.events_backwards, "Events that end before they start: {:,}. No time is counted there."),
    ):
        # Those that are left out are in no table.
        yield Defect(check, count, None, text.format(count), severity=HIGH if count >= GRAVE * total else MEDIUM)


def lost_launches(trace: RankTrace) -> Iterator[Defect]:
    """Kernel launches that no GPU operation answers, where those lie, and events that the profiler says it dropped.

    Their steps are partial: headlines lack those. Between launches that have an operation no edge of the recording
    explains them. Of CUDA graphs nothing that they ran was recorded.
    """
    calls, dropped = trace.api_calls, trace.meta.events_dropped
    lost, launches = is_lost_launch(calls), rows_named_so(calls, is_launch)
    count, total = int(lost.sum()), int(launches.sum())
    is_explained = dropped <= count
    text = f"Events that the profiler dropped: {dropped:,}; launches without an operation: {count:,}."
    affects = OPERATIONS if is_explained else (EVENTS,)
    yield Defect("dropped_events", dropped, None, text, affects, INFO if is_explained else MEDIUM)
    if trace.gpu_ops.empty or not total:
        return
    has_complete = not _complete_steps(trace).empty
    so = "Their steps are partial and left out of means." if has_complete else "No step is complete."
    text = f"Launches without a GPU operation: {count:,} of {total:,}. Work is missing or recorded elsewhere. {so}"
    severity = None if has_complete else MEDIUM
    yield Defect("launches_without_operation", count, total, text, OPERATIONS, severity)
    graphs = int((lost & rows_named_so(calls, is_graph_launch)).sum())
    text = f"CUDA graph launches without a GPU operation: {graphs:,}. What the graphs ran was not recorded."
    yield Defect(LOST_GRAPHS, graphs, count, text, OPERATIONS, INFO)
    answered = np.flatnonzero(launches & array_of(calls, "has_gpu_op"))
    if len(answered):
        amid = slice(answered[0], answered[-1] + 1)
        text = (
            "Launches without a GPU operation between recorded ones: {}. The profiler lost them: the GPU may have "
            "worked where it seems idle."
        )
        yield Defect.where(LOST_AMID, lost[amid][(launches | lost)[amid]], text)


def operations_without_launch(trace: RankTrace) -> Iterator[Defect]:
    """GPU operations whose host call the capture does not have; grave where headlines hold many of them."""
    ops = trace.gpu_ops
    is_without, held = array_of(ops, "launch") == NONE, _in_headline(trace)
    has_complete, inside = not _complete_steps(trace).empty, is_without[held]
    is_unnumbered = 2 * (is_without & ~(ops["correlation"] > 0).to_numpy()).sum() > is_without.sum()
    why = (
        "no API call was recorded"
        if trace.api_calls.empty
        else "they do not say which call launched them"
        if is_unnumbered
        else "no call bears their numbers"
        if is_without.all() and is_lost_launch(trace.api_calls).any()
        else "queued before it began"
    )
    text = (
        f"GPU operations without a launch in the capture ({why}): {{}}. They belong to no step and no phase; idle time "
        "before them has no known cause."
    )
    text += f" Inside complete steps: {inside.sum():,}." if has_complete else ""
    affects = (*CAUSES, "phase_of_op", "tree", *(("steps",) if has_complete else ()))
    severity = Defect.where("", inside, "").gravity
    yield Defect.where("operations_without_launch", is_without, text, affects, severity)


def shared_launches(trace: RankTrace) -> Iterator[Defect]:
    """Operations that name one launch, graphs aside, or a number that several calls bear: it is not unique then.

    And operations whose launch had returned before that of the one ahead on their stream began: a stream keeps order,
    and no difference of clocks makes any. Launches of several operations are those of CUDA graphs, or shared.
    """
    ops, calls = trace.gpu_ops, trace.api_calls
    launch = array_of(ops, "launch")
    held, is_kernel = launch != NONE, rows_named(ops, "activity", "kernel")
    times, kernels = (np.bincount(launch[own], minlength=len(calls)) for own in (held, held & is_kernel))
    is_graph, bears_anothers = rows_named_so(calls, is_graph_launch), _bears_anothers_number(calls)
    # One call may copy a batch, and launches one kernel.
    shared, repeated = ((((number > 1) & ~is_graph) | bears_anothers)[launch[held]] for number in (times, kernels))
    so = "Which call launched what, and in which step, is not known."
    text = (
        "GPU operations that share their launch with others: {}. Correlation numbers are used more than once, as in "
        f"files of several processes. {so}"
    )
    severity = HIGH if repeated.sum() >= GRAVE * len(repeated) else None
    yield Defect.where(SHARED, shared, text, _BY_LAUNCH, severity)
    single = np.flatnonzero(held)[times[launch[held]] == 1]
    order = single[np.lexsort((launch[single], array_of(ops, "start_ns")[single], array_of(ops, "stream")[single]))]
    begins, ends = arrays_of(calls, "start_ns", "end_ns", rows=launch[order])
    is_late = (ends < np.append(begins[:1], begins[:-1])) & (np.diff(array_of(ops, "stream")[order], prepend=NONE) == 0)
    text = (
        "GPU operations that start after an operation of the same stream that was launched later: {}. Correlation "
        f"numbers are not their own. {so}"
    )
    yield Defect.where(OUT_OF_ORDER, is_late, text, _BY_LAUNCH, grave_from=GRAVE)


def _bears_anothers_number(api_calls: pd.DataFrame) -> np.ndarray:
    """Mask of calls whose number another one, before or after them, has; calls inside each other bear one."""
    number, starts, ends = arrays_of(api_calls, "correlation", "start_ns", "end_ns")
    order = np.lexsort((starts, number))
    is_again = (np.diff(number[order]) == 0) & (starts[order][1:] >= ends[order][:-1]) & (number[order][1:] > 0)
    mask = np.zeros(len(api_calls), dtype=bool)
    mask[order[1:][is_again]] = mask[order[:-1][is_again]] = True
    return mask


def partial_steps(trace: RankTrace) -> Iterator[Defect]:
    """Steps that the capture cuts; those of a file that is cut off go with that."""
    is_none = _complete_steps(trace).empty
    so = "None is complete: headlines cover the whole capture." if is_none else "They are left out of means."
    is_partial = trace.steps["is_partial"] & (not trace.meta.is_truncated)
    text = f"Partial steps: {{}}. {so}"
    yield Defect.where("partial_steps", is_partial, text, ("steps",), MEDIUM if is_none else LOW)


def graphs_of_unknown_content(trace: RankTrace) -> Iterator[Defect]:
    """CUDA graphs that are recorded as one operation."""
    is_whole = rows_named(trace.gpu_ops, "activity", "graph")
    text = f"CUDA graphs recorded as a whole: {is_whole.sum():,}. Busy time is right; the kernels inside are unknown."
    yield Defect.where("graphs_of_unknown_content", is_whole, text, _LISTED, MEDIUM)


def _complete_steps(trace: RankTrace) -> pd.DataFrame:
    """The complete steps among those that are looked at."""
    steps = trace.steps if trace.window.steps is None else trace.steps[trace.steps["step"].isin(trace.window.steps)]
    return rows_where(steps, is_complete(steps)) if len(steps) else steps


def _in_headline(trace: RankTrace) -> np.ndarray:
    """GPU operations that run, at least in part, in what headlines are of: complete steps, else the window."""
    steps, ops = _complete_steps(trace), trace.gpu_ops
    starts, ends = arrays_of(ops, "start_ns", "end_ns")
    if steps.empty:
        mask: np.ndarray = trace.window.touched(starts, ends) != NONE
        return mask
    first, last = (steps[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    # The windows are disjoint and in order: those that end after the operation's start begin before its end, or not.
    following = np.searchsorted(last, starts, side="right")
    held: np.ndarray = np.append(first, np.iinfo(np.int64).max)[following] < ends
    return held


def arguments_of_calls(calls: pd.DataFrame) -> Iterator[Defect]:
    """Communication kernels without arguments of their own, of a host call, of an operator or of a later step."""
    if calls.empty:
        return
    is_kernel = (calls["collective"] != "peer_copy") & (waits_of(calls) != WAIT_ONLY)
    text = (
        "Communication operations without arguments: {}. Their process group and size are unknown; bandwidths leave "
        "them out."
    )
    yield Defect.where("communication_without_arguments", calls.loc[is_kernel, "arguments"].isna(), text, ("calls",))


def impossible_memory_levels(trace: RankTrace) -> Iterator[Defect]:
    """Moments at which the allocator had given out more than it held, or less than nothing."""
    masks = (rows_named(trace.counters, "name", f"memory_{name}_bytes") for name in ("allocated", "reserved"))
    allocated, reserved = (trace.counters[mask] for mask in masks)
    if not np.array_equal(array_of(allocated, "time_ns"), array_of(reserved, "time_ns")):
        return
    given_out = array_of(allocated, "value")
    text = (
        "Moments at which the allocator had given out more memory than it held, or less than none: {}. The levels are "
        "damaged, or of two allocators."
    )
    is_impossible = (given_out > array_of(reserved, "value")) | (given_out < 0)
    yield Defect.where("impossible_memory_levels", is_impossible, text, ("counters",), MEDIUM)


_SHORTEST_NS = 100
"""An empty kernel runs for some 700 ns on an H200."""


def impossible_times(trace: RankTrace) -> Iterator[Defect]:
    """Operations further apart than any recording lasts, outside of it, or kernels shorter than the smallest.

    Where all operations lie outside, the GPU's clock is another than the recorder's. Where kernels usually take less
    time than a GPU needs, the unit of times is mistaken.
    """
    ops = trace.gpu_ops
    starts, lengths = array_of(ops, "start_ns"), lengths_of(ops)
    span_ns = int(array_of(ops, "end_ns").max()) - int(starts[0])
    text = (
        f"The operations span {span_ns / 3.6e12:,.0f} hours, longer than any recording lasts: times of some are "
        "damaged, or the file holds two recordings."
    )
    yield Defect(FAR_APART, int(span_ns > LONGEST_CAPTURE_NS), None, text, severity=HIGH)
    is_out = is_outside(starts, (trace.meta.capture_start_ns, trace.meta.capture_end_ns))
    text = (
        "Operations over 10 s before the recording began or after it ended, as the file says: {}. Their times are "
        "damaged, or the file holds two recordings."
    )
    if not is_out.all():
        yield Defect.where(OUTSIDE, is_out, text, severity=HIGH)
    kernels = lengths[rows_named(ops, "activity", "kernel") & (lengths > 0)]
    text = (
        f"Kernels of less than {_SHORTEST_NS} ns, which no GPU runs: {{}}. All times are in another unit than the file "
        "says (too short by 1,000 times?)."
    )
    if len(kernels) >= A_SAMPLE and np.median(kernels) < _SHORTEST_NS:
        yield Defect.where(TOO_SHORT, kernels < _SHORTEST_NS, text, severity=HIGH)


def overlaps_on_a_stream(trace: RankTrace) -> Iterator[Defect]:
    """Operations that start before an earlier one of their stream has ended, or run wholly inside one.

    A stream runs one after the other. A dependent launch may begin early, but ends after what it depends on. The
    operations of a CUDA graph may run side by side, whatever stream they are recorded on. The driver makes copies from
    one memory of the host to another with the CPU, beside the stream.
    """
    memories = (rows_named(trace.gpu_ops, name, "pageable", "pinned") for name in ("source_memory", "target_memory"))
    ops = rows_where(trace.gpu_ops, ~np.logical_and(*memories))
    starts, ends, stream = arrays_of(ops, "start_ns", "end_ns", "stream")
    order = np.lexsort((ends, starts, stream))
    text = (
        "Operations that start before an earlier one on the same stream has ended: {}. Programmatic dependent launches "
        "do; else the times are inexact. Sums of durations exceed the time that has passed."
    )
    is_early = starts[order] < largest_before(ends[order], stream[order])
    yield Defect.where("overlaps_on_a_stream", is_early, text, ("kernels", "streams"))
    single = np.flatnonzero(ops["graph_node"].isna().to_numpy())
    order = single[np.lexsort((-ends[single], starts[single], stream[single]))]
    lengths, latest = (ends - starts)[order], largest_before(ends[order], stream[order])
    is_nested = (starts[order] < latest) & (ends[order] <= latest) & (lengths > 0)
    text = (
        "Operations inside an earlier one of the same stream: {}. Durations are damaged, streams have lost their "
        "numbers, or the file holds the work of several processes."
    )
    severity = HIGH if lengths[is_nested].sum() >= SOME * lengths.sum() else INFO
    yield Defect.where(NESTED, is_nested, text, severity=severity, grave_from=SOME)


def operations_without_duration(trace: RankTrace) -> Iterator[Defect]:
    """Operations that end where they start, or before (a reader takes negative durations for none).

    Grave where half have none, or too many whose name's others usually take 5 µs and more: not even whole microseconds
    round these to nothing.
    """
    took, names = lengths_of(trace.gpu_ops), trace.gpu_ops["name"].array.codes
    is_none = took <= 0
    usual = pd.Series(took[~is_none]).groupby(names[~is_none]).median().reindex(names[is_none])
    is_of_long = (usual >= SHORT_NS).any() and (usual >= SHORT_NS).sum() >= GRAVE * len(took)
    text = "GPU operations without duration, or with a negative one: {}. Their time is missing."
    yield Defect.where(NO_DURATION, is_none, text, OPERATIONS, HIGH if is_of_long else None, grave_from=SHARE)


def operations_before_their_launch(trace: RankTrace) -> Iterator[Defect]:
    """Operations that start before the call that launched them: the clocks of host and GPU disagree."""
    held = trace.launch != NONE
    launched_ns = array_of(trace.api_calls, "start_ns")[trace.launch[held]]
    text = (
        "GPU operations that start before their launch: {}. The clocks of CPU and GPU disagree; causes of idle time "
        "are inexact."
    )
    is_early = array_of(trace.gpu_ops, "start_ns")[held] < launched_ns
    yield Defect.where("operations_before_their_launch", is_early, text, CAUSES)


def operations_after_their_wait(trace: RankTrace) -> Iterator[Defect]:
    """Operations that end when a call that waits for the whole GPU, made after their launch, has returned already.

    The GPU's clock is ahead then. Not of a process that launches on other GPUs too: the call waits for one of them.
    """
    ops, calls = trace.gpu_ops, trace.api_calls
    launch = array_of(ops, "launch")
    held = launch != NONE
    starts, ends = (array_of(calls, name) for name in ("start_ns", "end_ns"))
    waits = np.flatnonzero(rows_named_so(calls, lambda name: waits_for(name) == FOR_ALL))
    if not len(waits) or len(np.setdiff1d(np.flatnonzero(array_of(calls, "has_gpu_op")), launch)):
        return
    after = np.searchsorted(starts[waits], ends[launch[held]])  # the first such call after each launch
    is_waited = after < len(waits)
    behind = array_of(ops, "end_ns")[held][is_waited] - ends[waits][after[is_waited]]
    text = (
        "GPU operations that end after the call that waited for them: {}, by up to "
        f"{time_text(int(behind.max(initial=0)))}. The GPU's clock is ahead of the CPU's; causes of idle time "
        "are inexact."
    )
    yield Defect.where("operations_after_their_wait", behind > 0, text, CAUSES)


UNKNOWN, NOWHERE, NAMELESS = "unknown_communication", "no_communication", "kernels_without_name"
_NONE_AT_ALL = "without_communication"
WITHOUT_MATCH = "kind_without_match"

OF_SEVERAL_RANKS = (NOWHERE, _NONE_AT_ALL)
"""Checks that say nothing of a rank that is alone."""

UNKNOWN_KERNELS = (UNKNOWN, NOWHERE, NAMELESS)
"""Checks that leave it open what of compute is communication: with them nothing can be called well."""

_OF_OPERATORS = re.compile(
    r"^(?:at|at_cuda_detail|cub|thrust|cutlass|cublas\w*|cudnn|pytorch_flash|flash)::"
    r"|^(?:nvjet|triton_|Cijk_|sm\d+_xmma|cudnn_generated|implicit_convolve|(?:maxwell|volta|turing|ampere)_)"
)
"""Kernels of libraries that only compute, whoever launches them."""


def unknown_communication(trace: RankTrace) -> Iterator[Defect]:
    """Compute kernels whose own name, or whose operator's, speaks of communication; the user's rules come first."""
    ops = trace.gpu_ops
    is_kernel = rows_named(ops, "kind", "compute") & rows_named(ops, "activity", "kernel")
    by_name = _by_name(ops, is_kernel)
    of_operators = _of_operators(trace, is_kernel)
    rules = [rule for _, rule in trace.meta.kind_rules.extra]
    speaks = [
        (kinds.speaks_of_communication(name) or name in of_operators) and not any(rule.search(name) for rule in rules)
        for name in by_name.index
    ]
    found = by_name[np.array(speaks, dtype=bool) & (by_name > 0)]
    if len(found):
        share = found.sum() / by_name.sum()
        is_found = rows_named(ops, "name", *found.index)
        alone = np.setdiff1d(*(array_of(ops, "stream")[is_kernel & is_own] for is_own in (is_found, ~is_found)))
        on = f" No other kernel runs on {numbered('stream', alone.tolist())}." if len(alone) else ""
        text = (
            "Kernels that no rule knows, whose names or operators' names speak of communication: "
            f"{_largest(found)}. They count as compute ({100 * share:.1f}% of its kernel time).{on} If they "
            f"communicate, add {_option(found)}."
        )
        yield Defect(UNKNOWN, len(found), len(by_name), text, BY_KIND, severity_of(share))


def kernels_without_name(trace: RankTrace) -> Iterator[Defect]:
    """Kernels whose names the file lacks: they count as compute, and may be anything."""
    is_kernel = rows_named(trace.gpu_ops, "activity", "kernel")
    by_name = _by_name(trace.gpu_ops, is_kernel)
    count = int((is_kernel & rows_named(trace.gpu_ops, "name", UNNAMED)).sum())
    share = by_name.get(UNNAMED, 0) / max(by_name.sum(), 1)
    text = (
        f"Kernels without a name in the file: {count:,} ({100 * share:.1f}% of kernel time). They count as compute; "
        "any may be communication. Record or export again."
    )
    yield Defect(NAMELESS, count if share else 0, None, text, BY_KIND, severity_of(share))


def no_communication(trace: RankTrace) -> Iterator[Defect]:
    """A rank that runs nothing which is known as communication, on its GPU or its CPU; of a job of one that is well."""
    ops = trace.gpu_ops
    is_compute = rows_named(ops, "kind", "compute")
    communicates = rows_named(ops, "kind", "comm").any() or rows_named_so(trace.ranges, is_cpu_collective).any()
    by_name = _by_name(ops, is_compute)
    if communicates or by_name.empty or any(kinds.is_fused(name) for name in by_name.index):
        return
    others = by_name[[not _OF_OPERATORS.search(function_path(name)) for name in by_name.index]]
    if others.sum() >= SOME * by_name.sum():
        text = (
            "A job of several ranks, and nothing in the capture is known as communication: it has none here, or no "
            "rule knows its kernels, which count as compute. Kernels that are of no library which only computes, the "
            f"longest first: {_largest(others)}. Name those that communicate, such as {_option(others[:1])}."
        )
        yield Defect(NOWHERE, 1, None, text, BY_KIND, MEDIUM)
    elif trace.meta.world_size is not None:
        text = (
            "A job of several ranks, and no communication in the capture: its kernels are of libraries that only "
            "compute. The steps exchange nothing (gradient accumulation, separate work), or that was not recorded."
        )
        yield Defect(_NONE_AT_ALL, 1, None, text, (), LOW)


def fused_kernels(trace: RankTrace) -> Iterator[Defect]:
    """Kernels that compute and communicate at once: compute, overlap and exposed communication leave theirs open."""
    by_name = _by_name(trace.gpu_ops, rows_named(trace.gpu_ops, "kind", "compute"))
    found = by_name[np.array([kinds.is_fused(name) for name in by_name.index], dtype=bool) & (by_name > 0)]
    share = found.sum() / max(by_name.sum(), 1)
    text = (
        f"Kernels that compute and communicate at once take {100 * share:.1f}% of compute kernel time: "
        f"{_largest(found)}. They count as compute; how much is communication, and how much of it hidden, is unknown."
    )
    yield Defect("fused_kernels", len(found), len(by_name), text, BY_KIND, MEDIUM if share >= SOME else LOW)


def kinds_without_match(trace: RankTrace) -> Iterator[Defect]:
    """The user's rules that no operation's name fits."""
    rules = trace.meta.kind_rules.extra
    names = [str(name) for name in trace.gpu_ops["name"].unique()] if rules else []
    for kind, rule in rules:
        if not any(rule.search(name) for name in names):
            text = f"--kernel-kind '{kind}={rule.pattern}' fits no kernel or copy in the capture."
            yield Defect(WITHOUT_MATCH, 1, None, text, (), MEDIUM)


def _by_name(ops: pd.DataFrame, held: np.ndarray) -> pd.Series:
    """Total time of each distinct name of these operations, longest first."""
    names: Any = ops["name"].array
    total = sums_at(names.codes[held], lengths_of(ops)[held], len(names.categories))
    occurs = np.unique(names.codes[held])
    order = occurs[np.argsort(-total[occurs], kind="stable")]
    return pd.Series(total[order], index=names.categories[order].astype("str"))


def _of_operators(trace: RankTrace, is_kernel: np.ndarray) -> set[str]:
    """Names of compute kernels that communicating operators launch, of which none launches anything that is known.

    Those operators are of libraries, and what PyTorch puts around every collective, of whatever backend.
    """
    ops = trace.gpu_ops
    operator = comm_operators(
        trace, np.arange(len(ops)), lambda name: name == "record_param_comms" or kinds.is_comm_operator(name)
    )
    inside = np.flatnonzero(operator != NONE)
    of_op = trace.host_ops["name"].array.codes[operator[inside]]
    is_known = rows_named(ops, "kind", "comm") | rows_named_so(ops, kinds.is_fused)
    without = inside[is_kernel[inside] & ~np.isin(of_op, of_op[is_known[inside]])]
    names = ops["name"].cat.categories[np.unique(ops["name"].array.codes[without])]
    return {name for name in names if not _OF_OPERATORS.search(function_path(name))}


def _largest(by_name: pd.Series) -> str:
    return named([f"{_short(name)} ({time_text(total)})" for name, total in by_name.items()])


def _short(name: object) -> str:
    """The function's own name; what is longer than a line is cut."""
    path = "".join(sign for sign in function_path(str(name)) if sign.isprintable())
    return path if len(path) <= 80 else f"{path[:79]}…"


def _option(by_name: pd.Series) -> str:
    """The `--kernel-kind` line for the largest of them."""
    paths = [function_path(str(name)).rsplit("::", 1)[-1][:60] for name in by_name.index[:MOST_PIECES]]
    pattern = "|".join(dict.fromkeys(map(re.escape, paths)))
    return f"--kernel-kind {shlex.quote(f'comm={pattern}')}"


OF_A_RANK = (
    file_damage, impossible_times, lost_launches, operations_without_launch, shared_launches, overlaps_on_a_stream,
    operations_without_duration, operations_before_their_launch, operations_after_their_wait, partial_steps,
    graphs_of_unknown_content, unknown_communication, no_communication, kernels_without_name, fused_kernels,
    kinds_without_match, impossible_memory_levels,
)  # fmt: skip
"""Checks of a rank with GPU work."""
