"""Which step each GPU operation belongs to, and the window that is looked at."""

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from traceanalyzer.errors import UsageError
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import LAUNCH_NS, SHORT_NS, named
from traceanalyzer.model import RankTrace, Window, whole_capture
from traceanalyzer.model.schema import NONE, STEPS, XLA_MODULES, conform
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    columns_as_they_are,
    nowhere,
    nullable,
    rows_named,
    rows_named_so,
    rows_where,
    table_of,
    with_columns,
)

# Whose steps those of PyTorch's profiler are: several profilers may be told of each step of one process.


_PROFILER_STEP = re.compile(r"^ProfilerStep#(\d{1,15})$")


_ROUNDED_NS = 1_000
"""By no more do ranges that follow each other overlap for how their times are written.

Microseconds since 1970 are exact to a quarter of one, once a program has read and saved them as floating-point numbers.
"""


def profiler_numbers(ranges: pd.DataFrame) -> list[int | None]:
    """The number that PyTorch's profiler gave each; none of other names."""
    found = [_PROFILER_STEP.search(name) for name in ranges["name"].array.tolist()]
    return [int(match[1]) if match else None for match in found]


def of_one_profiler(marked: pd.DataFrame) -> np.ndarray:
    """Mask of the ranges of the profiler that marks most steps.

    Where two profilers mark each step, one after the other, each one's range begins before the other's ends.
    """
    starts, ends = array_of(marked, "start_ns"), array_of(marked, "end_ns")
    if None in profiler_numbers(marked) or not ((starts[1:] < ends[:-1]) & (ends[1:] > ends[:-1])).any():
        return np.ones(len(marked), dtype=bool)
    return max((_in_turn(starts, ends, first) for first in (0, 1)), key=np.count_nonzero)


def _in_turn(starts: np.ndarray, ends: np.ndarray, first: int) -> np.ndarray:
    """Mask of the ranges from this one on that each begin when the one before has ended."""
    held, reach = np.zeros(len(starts), dtype=bool), starts[first]
    for row, start in enumerate(starts[first:].tolist(), first):
        if start >= reach:
            held[row], reach = True, ends[row] - _ROUNDED_NS
    return held


# Which ranges of a rank are its steps: named ones, iterations of inference, else one that launches all the work.


GUESSES = (
    re.compile(r"^ProfilerStep"),
    re.compile(r"^\W*(?:(?:global|train(?:ing)?)[\W_]*)?step[\W_]*\d+(?:[\W_]+\d+)*\W*$", re.IGNORECASE),
    re.compile(r"^\W*(?:(?:global|train(?:ing)?)[\W_]*)?iter(?:ation)?[\W_]*\d+(?:[\W_]+\d+)*\W*$", re.IGNORECASE),
    re.compile(r"^\W*train(?:ing)?[ _.]?step\b", re.IGNORECASE),
)
"""Names of ranges that are steps when the user names none; the first that occurs is used."""

ITERATIONS = (
    re.compile(r"^execute_(?:\d+_)?context_\d+\("),  # vLLM: requests and tokens of each phase
    re.compile(r"^execute_new_\d+_cached_\d+"),  # vLLM until early 2026: requests that are new, and that run already
    re.compile(r"^step\[[A-Z_]+ bs=\d+"),  # SGLang: `step[EXTEND bs=2 toks=64]`
    re.compile(r"^\[Executor\] _forward_step\b.*?: \d+ ctx reqs"),  # TensorRT-LLM: requests of each phase
    re.compile(r"^execute_model\b"),
    re.compile(
        r"^(?:forward_|run_batch_)?(?:decode|extend|prefill|mixed|idle)(?:_(?:batch|forward|step))?\b", re.IGNORECASE
    ),
)
"""Iterations of an inference engine; the first kind that occurs is used. Names of one kind may differ."""

_PARTS_OF_ITERATION = re.compile(r"^gpu_model_runner: (\w+)")
"""vLLM's parts of an iteration, where it marks no whole ones."""

LEAST_TIMES = 3

LEAST_SHARE = 0.8
"""Of the GPU time with a known launch, communication left out, what a repeated range launches that is a step."""

# What holds many steps: epochs and loops of programs and frameworks (Lightning's `[pl][profile]run_training_epoch`).
_HOLDS_STEPS = re.compile(
    r"epoch|\bfit\b|(?:^|\W)(?:main|run|train|training|trainer|train_loop|training_loop)\W*$", re.IGNORECASE
)

_NUMBER = re.compile(r"\d+")

# Compiled graphs and small batches repeat within a step.
_PART_OF_STEP = re.compile(r"CompiledFxGraph|micro_?batch|^nccl|^gloo:|^mpi:|^c10d:", re.IGNORECASE)


class StepRanges(NamedTuple):
    """The steps' ranges in order of time, none inside another, and a note on those that are left out."""

    table: pd.DataFrame
    notes: tuple[str, ...] = ()


def step_ranges(trace: RankTrace, pattern: str | None) -> StepRanges:
    """Which ranges are steps; an empty table where nothing is.

    With `pattern`, those that it names. Else the first of these that there are: profiler steps and names of `GUESSES`
    (runs of a module that XLA compiled, where these launch the work and the marks' thread is ahead of it);
    iterations of vLLM, SGLang and TensorRT-LLM; a compiled module of XLA, else an outermost range of one name, numbers
    in it apart, that occurs at least three times on one thread and in which at least 80% of the GPU time but for
    communication was launched. Ranges around an epoch or the whole training do not count as outer ones.

    Raises:
        UsageError: the pattern names no range.
    """
    names = trace.ranges["name"].cat.categories
    guesses = ([name for name in names if guess.search(name)] for guess in (*GUESSES, *ITERATIONS))
    for matching in (fnmatch.filter(names, pattern),) if pattern else guesses:
        if matching:
            marked = rows_where(trace.ranges, rows_named(trace.ranges, "name", *matching))
            is_own = of_one_profiler(marked)
            is_step = is_own.copy()
            is_step[is_own] = _is_step(rows_where(marked, is_own))
            steps = _cut(rows_where(marked, is_step))
            if not pattern and len(modules := _instead(trace, steps)):
                return StepRanges(modules, (_INSTEAD.format(modules["name"].iloc[0], steps["name"].iloc[0]),))
            notes = (*_of_other_profilers(marked, is_own), *_of_others(rows_where(marked, is_own), is_step[is_own]))
            return StepRanges(steps, notes)
    if pattern:
        raise UsageError(
            f"--step-range {pattern!r} names no range of rank {trace.rank}; it has {named(names.tolist())}"
        )
    parts = [name for name in names if _PARTS_OF_ITERATION.match(name)]
    found = _from_parts(trace.ranges[trace.ranges["name"].isin(parts)]) if parts else _repeated(trace)
    return StepRanges(found)


def _is_step(ranges: pd.DataFrame) -> np.ndarray:
    """Mask of the ranges that begin when the last step has ended, the first one being a step: steps do not nest.

    One that begins earlier and ends after it is a step where it is of the last one's thread: the last ends there.
    """
    is_step = np.zeros(len(ranges), dtype=bool)
    reach, last = _NEVER, None
    columns = (array_of(ranges, name).tolist() for name in ("start_ns", "end_ns", "thread"))
    for row, (start, end, thread) in enumerate(zip(*columns, strict=True)):
        if start >= reach or (end > reach and thread == last):
            is_step[row], reach, last = True, end, thread
    return is_step


def _cut(steps: pd.DataFrame) -> pd.DataFrame:
    """Each of them until the next one begins, at the latest."""
    following = np.append(array_of(steps, "start_ns")[1:], np.iinfo(np.int64).max)[: len(steps)]
    cut = np.minimum(array_of(steps, "end_ns"), following)
    return table_of({**columns_as_they_are(steps), "end_ns": cut})


def _of_other_profilers(marked: pd.DataFrame, is_own: np.ndarray) -> Iterator[str]:
    """Says so where ranges that mark steps are another profiler's."""
    if not is_own.all():
        own, others = marked["name"][is_own], marked["name"][~is_own]
        yield (
            f"Several profilers mark the steps of this process: {own.iloc[0]} to {own.iloc[-1]} are taken, the "
            f"{len(others):,} of another one ({others.iloc[0]} to {others.iloc[-1]}) begin before those have ended."
        )


def _of_others(marked: pd.DataFrame, is_step: np.ndarray) -> Iterator[str]:
    """Says so where ranges that mark steps are none, and are more than a few parts of those that are."""
    others, steps = marked[~is_step], marked[is_step]
    around = steps.iloc[np.cumsum(is_step)[~is_step] - 1]
    is_beyond = array_of(others, "end_ns") > array_of(around, "end_ns")
    if len(others) > len(steps) or is_beyond.any():
        first = int(is_beyond.argmax())
        yield (
            f"{len(others):,} of {len(marked):,} ranges that mark steps begin within other steps and are left out, "
            f"such as {others['name'].iloc[first]} in {around['name'].iloc[first]}. --step-range names other ranges."
        )


def _from_parts(parts: pd.DataFrame) -> pd.DataFrame:
    """An iteration begins with each occurrence of the part that came first, and ends where its last part does."""
    row = (parts["name"] == parts["name"].iloc[0]).cumsum()
    groups = parts.groupby(row, sort=True)
    spans = groups.agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), thread=("thread", "first"))
    name = pd.Categorical(["gpu_model_runner"] * len(spans))
    spans = spans.assign(name=name, domain=None, is_open=False).reset_index(drop=True)
    return _cut(spans[_is_step(spans)])


_INSTEAD = "Steps are runs of {}: the ranges that mark steps ({}, …) end before other threads launch their work."


def _instead(trace: RankTrace, steps: pd.DataFrame) -> pd.DataFrame:
    """Runs of an XLA module that launch most of the GPU's work, where these steps do not: JAX's program runs ahead."""
    modules = _modules(trace)
    if modules.empty:
        return modules
    launched_ns, all_ns = _launched_ns(trace, steps)
    return modules.iloc[:0] if launched_ns.sum() >= LEAST_SHARE * all_ns else modules


def _modules(trace: RankTrace) -> pd.DataFrame:
    return _most_launching(trace, rows_where(trace.ranges, rows_named(trace.ranges, "domain", XLA_MODULES)))


def _repeated(trace: RankTrace) -> pd.DataFrame:
    """Occurrences of the outermost range that launches most of the GPU's work; empty where none launches enough."""
    ranges = trace.ranges
    if len(ranges) < LEAST_TIMES:
        return ranges.iloc[:0]
    modules = _modules(trace)
    if len(modules):
        return modules
    names = ranges["name"].cat.categories
    counts = ranges["name"].value_counts()
    holding = [name for name in names if counts[name] < LEAST_TIMES and _HOLDS_STEPS.search(name)]
    ranges = ranges[~ranges["name"].isin(holding)]
    reach = ranges.groupby("thread")["end_ns"].cummax().groupby(ranges["thread"]).shift(fill_value=NONE)
    outer = ranges[(ranges["start_ns"] >= reach).to_numpy()]
    parts = [name for name in outer["name"].cat.categories if _PART_OF_STEP.search(name)]
    return _most_launching(trace, outer[~outer["name"].isin(parts)])


def _most_launching(trace: RankTrace, outer: pd.DataFrame) -> pd.DataFrame:
    """Of ranges that repeat on a thread, the name that launches most; empty where that is not enough."""
    if len(outer) < LEAST_TIMES:
        return outer.iloc[:0]
    launched_ns, all_ns = _launched_ns(trace, outer)
    kind = outer["name"].astype("object").map(lambda name: _NUMBER.sub("#", name))
    places = outer.assign(launched_ns=launched_ns, kind=kind).groupby(["thread", "kind"])["launched_ns"]
    totals = places.sum()[places.size() >= LEAST_TIMES]
    if totals.empty or totals.max() < LEAST_SHARE * all_ns or not all_ns:
        return outer.iloc[:0]
    thread, name = totals.idxmax()
    return outer[(outer["thread"] == thread) & (kind == name)].reset_index(drop=True)


def _launched_ns(trace: RankTrace, ranges: pd.DataFrame) -> tuple[np.ndarray, int]:
    """GPU time launched in each range, on whatever thread; and all GPU time with a known launch.

    Communication does not count, as a call also waits for other ranks: the range that waits for a late one, on every
    rank but that one, launches no more of the step for it.
    """
    own = (trace.gpu_ops["launch"] != NONE) & (trace.gpu_ops["kind"] != "comm")
    ops = trace.gpu_ops[own.to_numpy(dtype=bool)]
    called = array_of(trace.api_calls, "start_ns")[array_of(ops, "launch")]
    order = np.argsort(called, kind="stable")
    length = (ops["end_ns"] - ops["start_ns"]).to_numpy()[order]
    before = np.concatenate([[0], np.cumsum(length)])
    first, past = (np.searchsorted(called[order], array_of(ranges, name)) for name in ("start_ns", "end_ns"))
    return before[past] - before[first], int(before[-1])


# What numbers a rank's steps have, and after which of them recording paused.


_LAST_NUMBER = re.compile(r"(?<!\d)(\d{1,15})\D*$")  # more digits are no number of a step

_PAUSE = 0.5
"""Of a step's length: where numbers do not rise, so long nothing is recorded between it and the next in a pause."""


def numbers_of(names: pd.Series) -> np.ndarray:
    """The number that ends each name; ordinals where a name has none, two share one, or it counts something else."""
    # The numbers in an iteration's name are requests and tokens.
    if any(kind.search(name) for name in names for kind in ITERATIONS):
        return np.arange(len(names))
    texts = [match[1] for name in names if (match := _LAST_NUMBER.search(name))]
    return np.array([*map(int, texts)] if len(set(texts)) == len(names) else range(len(names)), dtype=np.int64)


def ends_recording(found: pd.DataFrame, of: str = "") -> np.ndarray:
    """Steps of PyTorch's profiler after which it paused: the next one in the file is not the program's next step.

    It numbers the steps that it does not record, too. Numbers that do not rise are of another profiler, or of a run
    that was resumed: there the time between the two tells.
    """
    starts, ends = array_of(found, f"{of}start_ns"), array_of(found, f"{of}end_ns")
    is_apart = starts[1:] - ends[:-1] > _PAUSE * (ends - starts)[:-1]
    pairs = [
        one is not None and other is not None and other != one + 1 and (other > one or bool(apart))
        for (one, other), apart in zip(pairwise(profiler_numbers(found)), is_apart, strict=True)
    ]
    return np.array([*pairs, False][: len(found)], dtype=bool)


def notes_of(found: pd.DataFrame) -> Iterator[str]:
    """Says so where the numbers of PyTorch's profiler repeat or fall."""
    own = profiler_numbers(found)
    fall = [(one, other) for one, other in pairwise(own) if one is not None and other is not None and other <= one]
    for one, other in fall[:1]:
        handling = "counted from 0" if len(set(own)) < len(own) else "taken"
        yield (
            f"Step {one} is followed by step {other}, as where several profilers record one process, or a run is "
            f"resumed: they are {handling} in order of time."
        )


# By how much a GPU's clock differs from its host's, and a trace without that difference.


A_SAMPLE = 100
"""Fewer operations are no sample."""


def on_one_clock(trace: RankTrace) -> RankTrace:
    """The trace with the GPU's times by the host's clock, and a note, where the two clocks differ."""
    ahead_ns = clock_ahead_ns(trace)
    if not ahead_ns:
        return trace
    by, (where, how) = time_text(abs(ahead_ns)), ("ahead of", "earlier") if ahead_ns > 0 else ("behind", "later")
    note = (
        f"The GPU's clock is {by} {where} the host's, as the starts of operations on an idle GPU show: GPU times are "
        f"shown {by} {how}."
    )
    ops, args = trace.gpu_ops, trace.comm_args
    moved = np.where(array_of(args, "gpu_op") != NONE, ahead_ns, 0)
    times = ("start_ns", "end_ns")
    return replace(
        trace,
        meta=replace(trace.meta, notes=(*trace.meta.notes, note)),
        gpu_ops=with_columns(ops, **{name: array_of(ops, name) - ahead_ns for name in times}),
        comm_args=with_columns(args, **{name: array_of(args, name) - moved for name in times}),
    )


def clock_ahead_ns(trace: RankTrace) -> int:
    """How much later the GPU's clock is than the host's (negative: earlier); 0 where they agree, or it is unknown.

    An operation that finds its GPU idle starts within launch latency. Where half of those start equally long after
    their launch, and none sooner, that time is the clocks': the wait in a queue differs from one to the next. The first
    to start is taken to start with the call that launches it: many do before it returns.
    """
    launch = trace.launch
    held = launch != NONE
    starts, ends = arrays_of(trace.gpu_ops, "start_ns", "end_ns")
    finds_idle = np.append(False, starts[1:] - np.maximum.accumulate(ends)[:-1] >= SHORT_NS)[: len(starts)] & held
    if np.count_nonzero(finds_idle) < A_SAMPLE:
        return 0
    since_begin, since_end = (starts - times[launch] for times in arrays_of(trace.api_calls, "start_ns", "end_ns"))
    for delays, sign in ((since_end, 1), (since_begin, -1)):
        least = int(delays[held].min())
        if sign * least > LAUNCH_NS and np.median(delays[finds_idle]) - least <= LAUNCH_NS:
            return int(since_begin[held].min())
    return 0


# cudaLaunchHostFunc runs on the host and leaves no GPU operation.
_LAUNCH = re.compile(r"Launch(?!HostFunc)")
_NEVER, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

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
    launch = trace.launch
    op_step = _step_of_launch(trace, found)[launch] if len(trace.api_calls) else nowhere(len(launch))
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
    is_lost: np.ndarray = rows_named_so(api_calls, _LAUNCH.search) & is_unanswered
    return is_lost & ~_in_graph_capture(api_calls) if is_lost.any() else is_lost


def _in_graph_capture(api_calls: pd.DataFrame) -> np.ndarray:
    """API calls between a begin of graph capture on their thread and the next end; an end beyond the trace counts."""
    begins, ends = (rows_named_so(api_calls, each.search) for each in (_BEGIN_CAPTURE, _END_CAPTURE))
    latest = pd.Series(np.select([begins, ends], [1.0, 0.0], np.nan)).groupby(array_of(api_calls, "thread")).ffill()
    return latest.to_numpy() == 1


def _step_of_launch(trace: RankTrace, found: pd.DataFrame) -> np.ndarray:
    """Row of the step at which the host is when each API call starts, whatever its thread."""
    times = array_of(found, "start_ns"), array_of(found, "end_ns")
    launched = array_of(trace.api_calls, "start_ns")
    return step_at(*_up_to_next(*times, ends_recording(found)), launched)


def step_at(starts: np.ndarray, ends: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Row of the disjoint, sorted range [start, end) that holds each time; -1 where none does."""
    if not len(starts):
        return nowhere(len(times))
    row = np.searchsorted(starts, times, side="right") - 1
    return np.where((row >= 0) & (times < ends[row]), row, NONE)


def host_spans(steps: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """When the host is at each step: from its range's start to the next one's, for what lies between is done for both.

    To its own end where the recording paused, or ended.
    """
    return _up_to_next(array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns"), before_pauses(steps))


def before_pauses(steps: pd.DataFrame) -> np.ndarray:
    """Mask of the steps after which recording paused."""
    return ends_recording(steps, of="host_")


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
            "start_ns": nullable(begins, has_none),
            "end_ns": nullable(ends, has_none),
            "is_partial": _is_partial(trace, found),
        }
    )
    return conform(frame, STEPS)


def _windows(trace: RankTrace, found: pd.DataFrame, op_step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of each step."""
    host_starts, host_ends = array_of(found, "start_ns"), array_of(found, "end_ns")
    ended, launch = array_of(trace.gpu_ops, "end_ns"), trace.launch
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
    has_launch, starts = array_of(gpu_ops, "launch") != NONE, array_of(gpu_ops, "start_ns")
    if has_launch.all():
        return ~has_launch
    launched = pd.Series(nullable(starts, ~has_launch))
    is_before = launched.groupby(array_of(gpu_ops, "stream")).transform("min") > starts
    return ~has_launch & is_before.to_numpy(dtype=bool, na_value=False)


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
    chosen = chosen_steps(steps, wanted)
    if chosen.empty and wanted == "complete":
        return whole_capture(trace.gpu_ops)
    if chosen.empty:
        raise UsageError(
            f"--steps {wanted}: rank {trace.rank} has no such step with GPU operations; "
            f"it has {named([str(number) for number in steps.loc[steps['start_ns'].notna(), 'step']])}"
        )
    numbers = tuple(int(number) for number in chosen["step"])
    return Window(_stretches(chosen), steps_text(numbers), numbers)


def _stretches(chosen: pd.DataFrame) -> tuple[tuple[int, int], ...]:
    """The steps' windows, those that touch joined."""
    starts, ends = (chosen[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    is_apart = starts[1:] > ends[:-1]
    first, last = np.append(True, is_apart), np.append(is_apart, True)
    return tuple(zip(starts[first].tolist(), ends[last].tolist(), strict=True))


def _beyond(steps: pd.DataFrame, wanted: str) -> Iterator[str]:
    """Says so when numbers are asked for that the capture does not have, beside those that it has."""
    there = sorted(steps.loc[steps["start_ns"].notna(), "step"].tolist())
    held = range(there[0], there[-1] + 1) if there and ":" in wanted else there
    if there and not all(int(number) in held for number in re.findall(r"\d+", wanted)):
        yield f"--steps {wanted} asks for more than the capture has ({steps_text(there)}): what it has of it is used."


def steps_text(numbers: Sequence[int]) -> str:
    """`step 2`, `steps 2 to 4` or `steps 2, 5`."""
    if len(numbers) == 1:
        return f"step {numbers[0]}"
    is_run = all(number == numbers[0] + place for place, number in enumerate(numbers))
    return f"steps {numbers[0]}–{numbers[-1]}" if is_run else "steps " + ", ".join(map(str, numbers))


def chosen_steps(steps: pd.DataFrame, wanted: str) -> pd.DataFrame:
    """Rows of the steps that `wanted` names, as in `Selection.steps` but for `all`; steps without a window are none."""
    held = steps[steps["start_ns"].notna()]
    if wanted in ("last", "complete"):
        complete = held[~held["is_partial"]]
        return complete.tail(1) if wanted == "last" else complete
    if ":" in wanted:
        first, last = (int(number or end) for number, end in zip(wanted.split(":"), (0, _LATEST), strict=True))
        return held[held["step"].between(first, last)]
    return held[held["step"].isin([*map(int, wanted.split(","))])]
