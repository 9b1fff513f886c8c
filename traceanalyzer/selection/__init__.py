"""Which step each GPU operation belongs to, and the window that is looked at."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.errors import UsageError
from traceanalyzer.model import RankTrace, Window, whole_capture
from traceanalyzer.model.plain import known_of
from traceanalyzer.model.schema import NONE, STEPS, conform
from traceanalyzer.model.tables import array_of, column_of, table_of
from traceanalyzer.selection.gpu_clock import on_one_clock
from traceanalyzer.selection.step_numbers import ends_recording, notes_of, numbers_of
from traceanalyzer.selection.step_ranges import some, step_ranges

# cudaLaunchHostFunc runs on the host and leaves no GPU operation.
_LAUNCH = re.compile(r"Launch(?!HostFunc)")
_NEVER = np.iinfo(np.int64).min

_BEGIN_CAPTURE, _END_CAPTURE = re.compile(r"StreamBeginCapture"), re.compile(r"StreamEndCapture")


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a capture is looked at.

    Attributes:
        step_range: name or glob of the ranges that are steps (`step_*`); `None` guesses.
        steps: `all` (the whole capture), `last` (the last complete step), `complete` (the rank's complete steps; the
            whole capture when it has none), `first:last` (by step number, both included; either may be empty), or
            numbers such as `2,4`: those steps and nothing between them.
    """

    step_range: str | None = None
    steps: str = "all"

    def __post_init__(self) -> None:
        if self.steps not in ("all", "last", "complete") and not re.fullmatch(r"\d*:\d*|\d+(,\d+)*", self.steps):
            raise UsageError(
                f"--steps {self.steps!r}: write all, complete, last, a step's number, 2,3, or FIRST:LAST such as 2:4"
            )
        first, _, last = self.steps.partition(":")
        if first.isdigit() and last.isdigit() and int(first) > int(last):
            raise UsageError(f"--steps {self.steps!r} is reversed: write {last}:{first}")


def select(trace: RankTrace, selection: Selection) -> RankTrace:
    """The trace with its steps found, its operations given to them, and its window set.

    A GPU operation belongs to the step in which the host launched it, one launched between two steps to the step
    before. A step begins at the later of its range's start and the end of the last operation launched before that, and
    ends where the next one begins; the last one before recording ends or pauses at the later of its range's end and
    its last operation's end. So steps tile the time, and what runs ahead of its step neither begins nor lengthens one.
    A step that launched nothing has no window. A step is partial when its range has no end in the capture, a launch of
    it has no GPU operation there, or the file is cut off.

    Raises:
        UsageError: the selection asks for steps that this capture does not have.
    """
    trace = on_one_clock(trace)
    found, notes = step_ranges(trace, selection.step_range)
    launch = array_of(trace.gpu_ops, "launch")
    op_step = _step_of_launch(trace, found)[launch] if len(trace.api_calls) else np.full(len(launch), NONE)
    op_step = np.where(launch == NONE, NONE, op_step)
    steps = _with_windows(trace, found, op_step) if len(found) else conform(None, STEPS)
    meta = replace(trace.meta, notes=(*trace.meta.notes, *notes, *notes_of(found), *_beyond(steps, selection.steps)))
    return replace(trace, meta=meta, steps=steps, op_step=op_step, window=_window(trace, steps, selection.steps))


def with_steps(trace: RankTrace, steps: str) -> RankTrace:
    """A trace whose steps are known, with another choice of them (as `Selection.steps`).

    Raises:
        UsageError: it has none of those steps.
    """
    return replace(trace, window=_window(trace, trace.steps, steps))


def is_lost_launch(api_calls: pd.DataFrame) -> np.ndarray:
    """Mask of the kernel launches that no GPU operation of the process answers.

    A copy is no evidence: one of no bytes leaves no operation. Neither is a call whose correlation id is unknown, nor
    one while its thread captures a CUDA graph: that is recorded, not run.
    """
    is_unanswered = ~array_of(api_calls, "has_gpu_op") & (array_of(api_calls, "correlation") > 0)
    is_lost: np.ndarray = _named(api_calls, _LAUNCH) & is_unanswered
    return is_lost & ~_in_graph_capture(api_calls) if is_lost.any() else is_lost


def _named(api_calls: pd.DataFrame, pattern: re.Pattern[str]) -> np.ndarray:
    names: Any = column_of(api_calls, "name")
    is_named = [pattern.search(name) is not None for name in names.categories.tolist()]
    mask: np.ndarray = np.array([*is_named, False])[names.codes]
    return mask


def _in_graph_capture(api_calls: pd.DataFrame) -> np.ndarray:
    """API calls between a begin of graph capture on their thread and the next end; an end beyond the trace counts."""
    inside = np.zeros(len(api_calls), dtype=bool)
    begins, ends = _named(api_calls, _BEGIN_CAPTURE), _named(api_calls, _END_CAPTURE)
    starts, threads = array_of(api_calls, "start_ns"), array_of(api_calls, "thread")
    for thread in np.unique(threads[begins]):
        own = threads == thread
        last_begin = np.append(-1, np.flatnonzero(begins & own))
        last_end = np.append(-1, np.flatnonzero(ends & own))
        rows = np.flatnonzero(own)
        # Calls are sorted by start: a row is inside when the last begin before it has no end since.
        begun = last_begin[np.searchsorted(starts[last_begin[1:]], starts[rows], side="left")]
        ended = last_end[np.searchsorted(starts[last_end[1:]], starts[rows], side="left")]
        inside[rows] = begun > ended
    return inside


def _step_of_launch(trace: RankTrace, found: pd.DataFrame) -> np.ndarray:
    """Row of the step at which the host is when each API call starts, whatever its thread."""
    times = array_of(found, "start_ns"), array_of(found, "end_ns")
    begun = array_of(trace.api_calls, "start_ns")
    return step_at(*_up_to_next(*times, ends_recording(found)), begun)


def step_at(starts: np.ndarray, ends: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Row of the disjoint, sorted range [start, end) that holds each time; -1 where none does."""
    if not len(starts):
        return np.full(len(times), NONE, dtype=np.int64)
    row = np.searchsorted(starts, times, side="right") - 1
    return np.where((row >= 0) & (times < ends[row]), row, NONE)


def host_spans(steps: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """When the host is at each step: from its range's start to the next one's, for what lies between is done for both.

    To its own end where the recording paused, or ended.
    """
    return _up_to_next(array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns"), before_pauses(steps))


def before_pauses(steps: pd.DataFrame) -> np.ndarray:
    """Mask of the steps after which recording paused."""
    return ends_recording(
        steps[["name", "host_start_ns", "host_end_ns"]].set_axis(["name", "start_ns", "end_ns"], axis=1)
    )


def _up_to_next(starts: np.ndarray, ends: np.ndarray, is_last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ranges, each up to the next one's start but for the last ones of a recording."""
    following = np.where(is_last[:-1], ends[:-1], np.maximum(ends[:-1], starts[1:]))
    return starts, np.append(following, ends[-1:])


def _with_windows(trace: RankTrace, found: pd.DataFrame, op_step: np.ndarray) -> pd.DataFrame:
    begins, ends = _windows(trace, found, op_step)
    has_none = ~np.isin(np.arange(len(found)), op_step) | (begins == ends)
    names = found["name"].astype(str)
    frame = table_of(
        {
            "step": numbers_of(names),
            "name": names,
            "host_start_ns": array_of(found, "start_ns"),
            "host_end_ns": array_of(found, "end_ns"),
            "start_ns": pd.arrays.IntegerArray(begins, has_none),
            "end_ns": pd.arrays.IntegerArray(ends, has_none),
            "is_partial": _is_partial(trace, found),
        }
    )
    return conform(frame, STEPS)


def _windows(trace: RankTrace, found: pd.DataFrame, op_step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of each step."""
    host_starts, host_ends = array_of(found, "start_ns"), array_of(found, "end_ns")
    ended, launch = array_of(trace.gpu_ops, "end_ns"), array_of(trace.gpu_ops, "launch")
    # An operation is earlier work of every step that begins on the host after its launch.
    earlier_of = np.zeros(len(launch), dtype=np.int64)
    has_launch = launch != NONE
    called = array_of(trace.api_calls, "start_ns")[launch[has_launch]]
    earlier_of[has_launch] = np.searchsorted(host_starts, called, side="right")
    is_known = has_launch | _launched_before_capture(trace.gpu_ops)
    earlier, own = np.full(len(found) + 1, _NEVER), np.full(len(found), _NEVER)
    np.maximum.at(earlier, earlier_of[is_known], ended[is_known])
    np.maximum.at(own, op_step[op_step != NONE], ended[op_step != NONE])
    begins = np.maximum(host_starts, np.maximum.accumulate(earlier)[:-1])
    last = np.maximum(np.maximum(host_ends, own), begins)
    return begins, np.append(np.where(ends_recording(found)[:-1], last[:-1], begins[1:]), last[-1:])


def _launched_before_capture(gpu_ops: pd.DataFrame) -> np.ndarray:
    """Mask of the operations without a launch that come before the first one with a launch on their stream."""
    has_launch = array_of(gpu_ops, "launch") != NONE
    codes, streams = pd.factorize(array_of(gpu_ops, "stream"))
    starts, first = array_of(gpu_ops, "start_ns"), np.full(len(streams), np.iinfo(np.int64).max)
    np.minimum.at(first, codes[has_launch], starts[has_launch])
    is_before: np.ndarray = ~has_launch & (starts < first[codes]) & np.isin(codes, codes[has_launch])
    return is_before


def _is_partial(trace: RankTrace, found: pd.DataFrame) -> np.ndarray:
    """Steps without an end, or with a launch (or after a step with one) whose GPU operation is not there.

    All of a file that is cut off.
    """
    if trace.meta.is_truncated:
        # A profiler may write a whole capture's launches and operations behind its operators: a cut then takes them
        # from every step, both together, so that those which are left still answer each other.
        return np.ones(len(found), dtype=bool)
    step = _step_of_launch(trace, found)
    # Of a rank without any GPU work the steps are known as the host's.
    lost = step[is_lost_launch(trace.api_calls) & (step != NONE)] if len(trace.gpu_ops) else step[:0]
    # Where a step begins is not known when operations of the one before it are not.
    partial: np.ndarray = np.isin(np.arange(len(found)), [*lost, *(lost + 1)]) | array_of(found, "is_open")
    return partial


def _window(trace: RankTrace, steps: pd.DataFrame, wanted: str) -> Window:
    if wanted == "all":
        return whole_capture(trace.gpu_ops)
    chosen = _chosen(steps, wanted)
    if chosen.empty and wanted == "complete":
        return whole_capture(trace.gpu_ops)
    if chosen.empty:
        raise UsageError(
            f"--steps {wanted}: rank {trace.rank} has no such step with GPU operations; "
            + some([str(number) for number in steps.loc[steps["start_ns"].notna(), "step"]])
        )
    numbers = tuple(int(number) for number in chosen["step"])
    return Window(_stretches(chosen), steps_text(numbers), numbers)


def _stretches(chosen: pd.DataFrame) -> tuple[tuple[int, int], ...]:
    """The steps' windows, those that touch joined."""
    starts, ends = (chosen[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    is_apart = starts[1:] > ends[:-1]
    first, last = np.append(True, is_apart), np.append(is_apart, True)
    return tuple(zip(starts[first].tolist(), ends[last].tolist(), strict=True))


def _beyond(steps: pd.DataFrame, wanted: str) -> tuple[str, ...]:
    """Says so when numbers are asked for that the capture does not have, beside those that it has."""
    there = sorted(array_of(steps, "step")[known_of(steps, "start_ns")].tolist())
    asked = [int(number) for number in re.findall(r"\d+", wanted)]
    is_range = ":" in wanted
    is_there = [there[0] <= number <= there[-1] if is_range else number in there for number in asked] if there else []
    if all(is_there):
        return ()
    return (f"--steps {wanted} asks for more than the capture has ({steps_text(there)}): what it has of it is used.",)


def steps_text(numbers: Sequence[int]) -> str:
    """`step 2`, `steps 2 to 4` or `steps 2, 5`."""
    if len(numbers) == 1:
        return f"step {numbers[0]}"
    is_run = list(numbers) == list(range(numbers[0], numbers[-1] + 1))
    return f"steps {numbers[0]} to {numbers[-1]}" if is_run else "steps " + ", ".join(map(str, numbers))


def _chosen(steps: pd.DataFrame, wanted: str) -> pd.DataFrame:
    with_window = steps[steps["start_ns"].notna()]
    complete = with_window[~with_window["is_partial"]]
    if wanted in ("last", "complete"):
        return complete.tail(1) if wanted == "last" else complete
    if "," in wanted:
        return with_window[with_window["step"].isin([int(number) for number in wanted.split(",")])]
    first, colon, last = wanted.partition(":")
    low = int(first) if first else 0
    high = (int(last) if last else None) if colon else low
    numbers = with_window["step"]
    return with_window[(numbers >= low) & ((numbers <= high) if high is not None else True)]
