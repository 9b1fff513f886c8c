"""Which step each GPU operation belongs to, and the window that is looked at."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.errors import UsageError
from traceanalyzer.model import RankTrace, Window, whole_capture
from traceanalyzer.model.plain import known_of, lengths_of, rows_named
from traceanalyzer.model.schema import NONE, STEPS, conform
from traceanalyzer.model.tables import array_of, column_of, table_of
from traceanalyzer.selection.gpu_clock import on_one_clock
from traceanalyzer.selection.step_numbers import ends_recording, notes_of, numbers_of
from traceanalyzer.selection.step_ranges import some, step_ranges

# cudaLaunchHostFunc runs on the host and leaves no GPU operation.
_LAUNCH = re.compile(r"Launch(?!HostFunc)")
_LEAST_STEPS = 2
"""So many are too few to leave one out: the last one is open."""

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
    before. Step n's window runs from its first operation's start to the next step's first operation's start; the last
    one is open and ends with its last operation. An operation that runs ahead of its step is no step's first one: one
    that starts before the step before its own has begun, or before the stream that computes most has come to the last
    operation of that step (copies and parameters that are prefetched while the host runs ahead). Steps begin in order,
    and their windows lie end to end. A step that has no other operations has no window. A step is partial when a launch
    of it has no GPU operation in the capture, when the file is cut off, or Nsight Systems was started just before it.

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
    starts, ends = array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns")
    return _up_to_next(starts, ends, array_of(steps, "is_open").astype(bool))


def _up_to_next(starts: np.ndarray, ends: np.ndarray, is_last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ranges, each up to the next one's start but for the last ones of a recording."""
    following = np.where(is_last[:-1], ends[:-1], np.maximum(ends[:-1], starts[1:]))
    return starts, np.append(following, ends[-1:])


def _with_windows(trace: RankTrace, found: pd.DataFrame, op_step: np.ndarray) -> pd.DataFrame:
    starts, ends = (array_of(trace.gpu_ops, name) for name in ("start_ns", "end_ns"))
    held = op_step != NONE
    first = _first_starts(starts, op_step, held, held & _is_main_stream(trace.gpu_ops), len(found))
    last = np.full(len(found), _NEVER)
    np.maximum.at(last, op_step[held], ends[held])
    # A step that launched nothing has no window, and the one before it ends where a later one begins.
    later = _known_after(first)
    is_open = ends_recording(found) | np.array([begin is None for begin in later], dtype=bool)
    until = zip(
        first, np.where(is_open, last, [_NEVER if begin is None else begin for begin in later]).tolist(), strict=True
    )
    names = found["name"].astype(str)
    frame = table_of(
        {
            "step": numbers_of(names),
            "name": names,
            "host_start_ns": array_of(found, "start_ns"),
            "host_end_ns": array_of(found, "end_ns"),
            "start_ns": pd.array(first, dtype="Int64"),
            "end_ns": pd.array([None if begin is None else end for begin, end in until], dtype="Int64"),
            "is_open": is_open,
            "is_partial": _is_partial(trace, found),
        }
    )
    return conform(frame, STEPS)


def _known_after(numbers: list[int | None]) -> list[int | None]:
    """For each the next one that is known; `None` after the last of them."""
    found: list[int | None] = []
    known: int | None = None
    for number in reversed(numbers):
        found.append(known)
        known = known if number is None else number
    return found[::-1]


def _is_main_stream(gpu_ops: pd.DataFrame) -> np.ndarray:
    """Mask of the operations on the stream that computes most; of none where nothing computes."""
    compute = np.where(rows_named(gpu_ops, "kind", "compute"), lengths_of(gpu_ops), 0)
    codes, streams = pd.factorize(array_of(gpu_ops, "stream"))
    times = np.bincount(codes, compute, minlength=len(streams))
    if not times.any():
        return np.zeros(len(codes), dtype=bool)
    is_main: np.ndarray = codes == times.argmax()
    return is_main


def _first_starts(
    starts: np.ndarray, step: np.ndarray, held: np.ndarray, is_main: np.ndarray, steps: int
) -> list[int | None]:
    """For each step the start of its first operation that does not run ahead of it; absent without one."""
    last_main = np.full(steps, _NEVER)
    np.maximum.at(last_main, step[is_main], starts[is_main])
    order = np.flatnonzero(held)[np.lexsort((starts[held], step[held]))]
    ends = np.searchsorted(step[order], np.arange(steps), side="right")
    first: list[int | None] = []
    begun, main, past = _NEVER, _NEVER, 0
    for end, own_main in zip(ends.tolist(), last_main.tolist(), strict=True):
        own = starts[order[past:end]]
        reached = [at for at in (np.searchsorted(own, max(begun, main)), np.searchsorted(own, begun)) if at < len(own)]
        first.append(int(own[reached[0]]) if reached else None)
        begun, main, past = first[-1] if first[-1] is not None else begun, max(main, own_main), end
    return first


def _is_partial(trace: RankTrace, found: pd.DataFrame) -> np.ndarray:
    """Steps with a launch whose GPU operation the capture does not have; all of a file that is cut off."""
    if trace.meta.is_truncated:
        # A profiler may write a whole capture's launches and operations behind its operators: a cut then takes them
        # from every step, both together, so that those which are left still answer each other.
        return np.ones(len(found), dtype=bool)
    step = _step_of_launch(trace, found)
    partial: np.ndarray = np.isin(np.arange(len(found)), step[is_lost_launch(trace.api_calls) & (step != NONE)])
    if _begins_with_capture(trace, found):
        partial[0] = True
    return partial


def _begins_with_capture(trace: RankTrace, found: pd.DataFrame) -> bool:
    """Whether Nsight Systems was started right before the first of several steps (`cudaProfilerStart`), on each rank.

    That takes each rank up to a second, some longer than others: in its first collective a rank then waits for those
    that are still starting to record. Ranks that communicate in the capture before the first step begin it together.
    """
    if not trace.meta.starts_alone or len(found) <= _LEAST_STEPS or not len(trace.comm_args):
        return False
    first = found["start_ns"].iloc[0]
    return bool(trace.comm_args["start_ns"].min() >= first and not _launched_before(trace.api_calls, first))


def _launched_before(api_calls: pd.DataFrame, time_ns: int) -> bool:
    """Whether anything was launched before a moment."""
    return bool((_named(api_calls, _LAUNCH) & (api_calls["start_ns"] < time_ns).to_numpy()).any())


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
    complete = with_window[~with_window["is_open"] & ~with_window["is_partial"]]
    if wanted in ("last", "complete"):
        return complete.tail(1) if wanted == "last" else complete
    if "," in wanted:
        return with_window[with_window["step"].isin([int(number) for number in wanted.split(",")])]
    first, colon, last = wanted.partition(":")
    low = int(first) if first else 0
    high = (int(last) if last else None) if colon else low
    numbers = with_window["step"]
    return with_window[(numbers >= low) & ((numbers <= high) if high is not None else True)]
