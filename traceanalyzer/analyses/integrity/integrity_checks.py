"""What can be wrong with one rank's trace, check by check."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.names import SourceName
from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.analyses.time.steps import is_complete
from traceanalyzer.meaning.listed import part_of
from traceanalyzer.meaning.severities import HIGH, INFO, LOW, MEDIUM, Severity
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, rows_where
from traceanalyzer.selection import is_lost_launch

_MANY, SOME = 0.1, 0.01
"""Shares from which a defect is medium, and low."""

GRAVE = 0.05
"""Share of events with damaged times, or numbers that are not their own, from which figures are wrong."""

CAUSES: tuple[SourceName, ...] = ("idle", "gaps", "launches", "queue_depth", "what_ran", "replay")
"""What sets operations beside the calls that launched them."""

_LISTED: tuple[SourceName, ...] = ("kernels", "calls", "stream_pairs", "blocks", "categories")
BY_KIND: tuple[SourceName, ...] = ("breakdown", "overlap", "steps", *_LISTED)
"""What tells kinds of operations apart; of the first three, what unknown kinds leave open is absent."""

_BY_LAUNCH: tuple[SourceName, ...] = (*CAUSES, "steps", "phase_of_op", "tree")
"""What takes an operation's step and phase from the call that launched it."""

OPERATIONS: tuple[SourceName, ...] = ("gpu_ops",)

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
        count: how many events it concerns.
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
    affects: tuple[SourceName, ...]


def file_damage(trace: RankTrace) -> list[Defect]:
    """Files cut off while they were written, and events that could not be read."""
    found = []
    if trace.meta.is_truncated:
        text = (
            "The file is cut off: what came after its end is missing, with it GPU operations of any step. No step can "
            "be shown to be complete, so that headlines are of all that is left."
        )
        found.append(Defect(TRUNCATED, HIGH, 1, None, text, (EVENTS,)))
    if trace.meta.events_skipped:
        count = trace.meta.events_skipped
        unread = f"{many(count, 'event')} could not be read, or {have(count)} times that cannot be"
        text = f"{unread}, and {_are(count)} left out."
        found.append(Defect(UNREADABLE, _by_events(count, trace), count, None, text, (EVENTS,)))
    if trace.meta.events_backwards:
        count = trace.meta.events_backwards
        text = (
            f"{many(count, 'event')} ended before {'it' if count == 1 else 'they'} started: no time is counted there."
        )
        found.append(Defect(BACKWARDS, _by_events(count, trace), count, None, text, (EVENTS,)))
    return found


def _by_events(count: int, trace: RankTrace) -> Severity:
    """Of events of which something is lost; those that are left out are in no table."""
    total = sum(len(table) for table in (trace.gpu_ops, trace.api_calls, trace.host_ops, trace.ranges))
    return HIGH if count >= GRAVE * total else MEDIUM


def dropped_events(trace: RankTrace) -> list[Defect]:
    """Events that the profiler itself says it dropped, beyond the launches whose operation is missing."""
    count = trace.meta.events_dropped
    missing = int(is_lost_launch(trace.api_calls).sum())
    text = f"The profiler dropped {many(count, 'event')}"
    if count <= missing:
        text += ": launches without an operation say where."
        return [Defect("dropped_events", INFO, count, None, text, OPERATIONS)] if count else []
    text += f", of which {many(missing, 'launch', 'launches')} without an operation {_are(missing)} all that shows."
    return [Defect("dropped_events", MEDIUM, count, None, text, (EVENTS,))]


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
    return [Defect(LOST_AMID, by_share(count, total), count, total, text, (EVENTS,))] if count else []


def lost_graphs(trace: RankTrace) -> list[Defect]:
    """Launches of CUDA graphs among those without an operation: nothing of what such a graph runs was recorded."""
    lost = is_lost_launch(trace.api_calls)
    count = int((lost & host_names.matches(trace.api_calls["name"], host_names.is_graph_launch)).sum())
    text = (
        f"{many(count, 'launch', 'launches')} of CUDA graphs {have(count)} no operation in the capture: what the "
        "graphs ran was not recorded."
    )
    return [Defect(LOST_GRAPHS, INFO, count, int(lost.sum()), text, OPERATIONS)] if count else []


def operations_without_launch(trace: RankTrace) -> list[Defect]:
    """GPU operations whose host call the capture does not have; grave where headlines hold many of them."""
    total = len(trace.gpu_ops)
    is_without = array_of(trace.gpu_ops, "launch") == NONE
    count = int(is_without.sum())
    if not count:
        return []
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
    affects: tuple[SourceName, ...] = (*CAUSES, "phase_of_op", "tree")
    affects = (*affects, "steps") if has_complete else affects
    return [Defect(WITHOUT_LAUNCH, severity, count, total, f"{text}.", affects)]


def shared_launches(trace: RankTrace) -> list[Defect]:
    """Operations that name one launch, graphs aside, or a number that several calls bear: it is not unique then."""
    launch = array_of(trace.gpu_ops, "launch")
    calls = launch[launch != NONE]
    is_graph = host_names.matches(trace.api_calls["name"], host_names.is_graph_launch)
    times = np.bincount(calls, minlength=len(trace.api_calls))
    kernels = np.bincount(launch[(launch != NONE) & is_any(trace.gpu_ops["activity"], "kernel")], minlength=len(times))
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
    return [Defect(SHARED, severity, count, total, text, _BY_LAUNCH)] if count else []


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
    return [Defect(OUT_OF_ORDER, severity, count, len(order), text, _BY_LAUNCH)] if count else []


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
    if _complete_steps(trace).empty:
        text += "; none is complete, so that headlines are of the whole capture"
        return [Defect("partial_steps", MEDIUM, count, total, f"{text}.", ("steps",))] if count else []
    return [Defect("partial_steps", LOW, count, total, f"{text}.", ("steps",))] if count else []


def cuda_graphs(trace: RankTrace) -> list[Defect]:
    """CUDA graphs: captured during the recording, replayed, or recorded as one operation of unknown content."""
    calls, ops = trace.api_calls, trace.gpu_ops
    found = []
    captures = int(host_names.matches(calls["name"], host_names.is_graph_capture).sum())
    if captures:
        text = f"{many(captures, 'call')} of graph capture: what is launched inside runs later, as part of a replay."
        found.append(Defect("graph_captures", INFO, captures, None, text, ("launches",)))
    unknown = int(is_any(ops["activity"], "graph").sum())
    if unknown:
        text = f"{many(unknown, 'CUDA graph')} recorded as a whole: busy time is right, what ran inside is unknown."
        found.append(Defect("graphs_of_unknown_content", MEDIUM, unknown, len(ops), text, _LISTED))
    nodes = len(ops) - int(column_of(ops, "graph_node").isna().sum())
    if nodes:
        text = f"{many(nodes, 'operation')} ran in CUDA graphs: one launch stands for many, operators are unknown."
        found.append(Defect("graph_operations", INFO, nodes, len(ops), text, ("launches", "phases")))
    return found


@once_a_trace
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
