"""Which ranges of a rank are its steps: named ones, iterations of inference, else one that launches all the work."""

import fnmatch
import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from traceanalyzer.errors import UsageError
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named
from traceanalyzer.model.schema import NONE, XLA_MODULES
from traceanalyzer.model.tables import array_of, columns_as_they_are, rows_where, table_of
from traceanalyzer.selection.profilers import of_one_profiler

GUESSES = (
    re.compile(r"^ProfilerStep"),
    re.compile(r"^\W*(?:(?:global|train(?:ing)?)[\W_]*)?step[\W_]*\d+(?:[\W_]+\d+)*\W*$", re.IGNORECASE),
    re.compile(r"^\W*(?:(?:global|train(?:ing)?)[\W_]*)?iter(?:ation)?[\W_]*\d+(?:[\W_]+\d+)*\W*$", re.IGNORECASE),
    re.compile(r"^\W*train(?:ing)?[ _.]?step\b", re.IGNORECASE),
)
"""Names of ranges that are taken for steps when the user names none; the first that occurs is used."""

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

_NEVER = np.iinfo(np.int64).min

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
    """The steps' ranges in order of time, none inside another, and what is to be said of those that are left out."""

    table: pd.DataFrame
    notes: tuple[str, ...] = ()


def step_ranges(trace: RankTrace, pattern: str | None) -> StepRanges:
    """Which ranges are steps; an empty table where nothing is.

    With `pattern`, those that it names. Else the first of these that there are: profiler steps and names of `GUESSES`
    (runs of a module that XLA compiled, where these launch the work and the marks' thread is ahead of it);
    iterations of vLLM, SGLang and TensorRT-LLM; a compiled module of XLA, else an outermost range of one name, numbers
    in it apart, that occurs at least three times on one thread and in which at least 80 % of the GPU time but for
    communication was launched. Ranges around an epoch or the whole training do not count as outer ones.

    Raises:
        UsageError: the pattern names no range.
    """
    names = trace.ranges["name"].cat.categories
    guesses = ([name for name in names if guess.search(name)] for guess in GUESSES)
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
        raise UsageError(f"--step-range {pattern!r} names no range of rank {trace.rank}; {some(list(names))}")
    iterations = _iterations(trace.ranges)
    return StepRanges(iterations if len(iterations) else _repeated(trace))


def is_iteration(name: str) -> bool:
    """A name of an inference engine's iteration: the numbers in it are requests and tokens."""
    return any(kind.search(name) for kind in ITERATIONS)


def some(names: list[str], most: int = 8) -> str:
    """The first names, for a message."""
    if not names:
        return "it has none"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"it has {', '.join(names[:most])}{more}"


def _outermost(ranges: pd.DataFrame) -> pd.DataFrame:
    return _cut(ranges[_is_step(ranges)])


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


def _of_other_profilers(marked: pd.DataFrame, is_own: np.ndarray) -> tuple[str, ...]:
    """Says so where ranges that mark steps are another profiler's."""
    if is_own.all():
        return ()
    others = marked["name"][~is_own]
    own = marked["name"][is_own]
    said = (
        f"Several profilers mark the steps of this process: {own.iloc[0]} to {own.iloc[-1]} are taken, the "
        f"{len(others):,} of another one ({others.iloc[0]} to {others.iloc[-1]}) begin before those have ended."
    )
    return (said,)


def _of_others(marked: pd.DataFrame, is_step: np.ndarray) -> tuple[str, ...]:
    """Says so where ranges that mark steps are none, and are more than a few parts of those that are."""
    if is_step.all():
        return ()
    others = marked[~is_step]
    around = np.cumsum(is_step)[~is_step] - 1
    steps = marked[is_step].iloc[around]
    is_beyond = array_of(others, "end_ns") > array_of(steps, "end_ns")
    if len(others) <= is_step.sum() and not is_beyond.any():
        return ()
    first = int(is_beyond.argmax())
    how = "on another thread, before the end of" if is_beyond[first] else "within"
    example = f"{others['name'].iloc[first]} begins {how} {steps['name'].iloc[first]}"
    said = (
        f"{len(others):,} of {len(marked):,} ranges that mark steps are not taken for steps, as others hold when they "
        f"begin: {example}. --step-range names other ranges."
    )
    return (said,)


def _iterations(ranges: pd.DataFrame) -> pd.DataFrame:
    names = ranges["name"].cat.categories
    for kind in ITERATIONS:
        matching = [name for name in names if kind.search(name)]
        if matching:
            return _outermost(ranges[ranges["name"].isin(matching)])
    parts = {name: match[1] for name in names if (match := _PARTS_OF_ITERATION.match(name))}
    return _from_parts(ranges[ranges["name"].isin(list(parts))]) if parts else ranges.iloc[:0]


def _from_parts(parts: pd.DataFrame) -> pd.DataFrame:
    """An iteration begins with each occurrence of the part that came first, and ends where its last part does."""
    row = (parts["name"] == parts["name"].iloc[0]).cumsum()
    groups = parts.groupby(row, sort=True)
    spans = groups.agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), thread=("thread", "first"))
    name = pd.Categorical(["gpu_model_runner"] * len(spans))
    return _outermost(spans.assign(name=name, domain=None, is_open=False).reset_index(drop=True))


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
