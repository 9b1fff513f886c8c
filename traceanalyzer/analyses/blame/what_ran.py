"""What each step of a rank consists of by name, part by part: to say what is longer than on its peers."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import prod
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, picked, stack, taken
from traceanalyzer.analyses.blame.step_parts import step_gaps
from traceanalyzer.analyses.grouping import Groups, by_letters, first_of_each
from traceanalyzer.analyses.host import host_names, idle_causes
from traceanalyzer.analyses.host.host_activity import NOTHING, activity_of, range_around
from traceanalyzer.analyses.names import WhatRanColumn
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.meaning.vocabulary import DATA, HOST, SYNC
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE

OPERATOR, KERNEL, COPY, DOING, RANGE = "operator", "kernel", "copy", "doing", "range"
"""What a name is of, best first within a part: an operator with its shapes, a kernel; what the host did, its range."""

MEMORY_CALLS = "calls for GPU memory"
"""What stands for `cudaMalloc`, `cudaFree` and their like: an allocator that takes memory anew runs both in turn."""

COLUMNS = ("step", "part", "what", "name", "total_ns", "calls", "blocks")

_SUMS = ["total_ns", "calls", "blocks"]

_MOST_NAMES = 30


class WhatRan(Result[WhatRanColumn]):
    """One row for each rank, step, part of its time and name; the longest of each."""

    title: ClassVar[str] = "What steps consist of, by name"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "step", "part", "what", "name")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Step that launched it; absent without steps."),
        "part": Column.text(
            "Part of the rank's time as `step_needs` has it: of idle time, what the host did before the launch."
        ),
        "what": Column.text(
            "operator (with its shapes), kernel, copy; of idle time doing (the innermost call, operator, range or "
            "Python frame) or range (the user's innermost range)."
        ),
        "name": Column.text("Its name.", written=Written.KERNEL),
        "total_ns": Column.time("Summed durations; of idle time only what lies in it."),
        "calls": Column.count("How many operations; 0 of what hosts do."),
        "blocks": Column.count("Thread blocks of all of them; 0 where the trace has no grids.", is_secondary=True),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        step = table["step"].astype("Int64")
        return table.assign(step=step.where(step != NONE))


def per_rank(trace: RankTrace, tree: OperatorTree, parts_of_steps: pd.DataFrame) -> pd.DataFrame:
    """The longest names of each step and part."""
    return what_ran(trace, parts_of_steps, tree)


def across(parts: Mapping[int, pd.DataFrame]) -> WhatRan:
    """The ranks' rows under each other."""
    return WhatRan(stack(parts, tuple(WhatRan.columns)))


def what_ran(trace: RankTrace, windows: pd.DataFrame, tree: OperatorTree) -> pd.DataFrame:
    """Rows `COLUMNS`: the longest names of each step and part; of idle time what the host did before the launch."""
    if windows.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    table = pd.concat([*_on_gpu(trace, tree), *_on_host(trace, windows)], ignore_index=True)
    table = table[table["step"].isin(windows["step"])]
    # Several threads may do the same.
    groups = Groups.of(table, ["step", "part", "what", "name"], by_appearance=True)
    table = groups.table(**_sums(groups, table))
    lengths = table["total_ns"].to_numpy()
    order = np.argsort(-lengths, kind="stable")
    table = table.take(order[lengths[order] > 0])
    held = first_of_each(Groups.of(table, ["step", "part", "what"]).of_row, _MOST_NAMES)
    return table.loc[held, list(COLUMNS)].reset_index(drop=True)


def _on_gpu(trace: RankTrace, tree: OperatorTree) -> Iterator[pd.DataFrame]:
    ops = trace.gpu_ops
    numbers = np.append(trace.steps["step"].to_numpy(), NONE)
    table = pd.DataFrame(
        {
            "step": numbers[trace.op_step] if len(trace.steps) else np.full(len(ops), NONE),
            "total_ns": (ops["end_ns"] - ops["start_ns"]).to_numpy(),
            "name": by_letters(ops["name"].array),
            "owner": tree.owner,
            "calls": 1,
            "blocks": _blocks(ops["grid"]),
        }
    )
    is_compute, is_copy = ((ops["kind"] == kind).to_numpy() for kind in ("compute", "copy"))
    yield _summed(table[is_compute], "compute_ns", KERNEL)
    yield _summed(table[is_copy], "exposed_copy_ns", COPY)
    owned = table[is_compute & (tree.owner >= 0)]
    groups = Groups.of(owned, ["step", "owner"])
    sums = groups.table(**_sums(groups, owned))
    yield _summed(sums.assign(name=_called(trace.host_ops, sums["owner"].to_numpy())), "compute_ns", OPERATOR)


def _blocks(grid: pd.Series) -> np.ndarray:
    """Thread blocks of each operation, from `24x1x1`; 0 where the trace has none."""
    texts = map(str, grid.cat.categories)
    counts = [prod(map(int, text.split("x"))) if text.replace("x", "").isdigit() else 0 for text in texts]
    blocks: np.ndarray = np.array([*counts, 0], dtype=np.int64)[grid.cat.codes.to_numpy()]
    return blocks


def _called(host_ops: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
    """`aten::mm of [8192, 8192] × [8192, 8192]`, by row of the operator."""
    keys = ["name", "shapes"]
    groups = Groups.of(picked(host_ops, rows, keys), keys, with_absent=True)
    texts = [_with_shapes(name, shapes) for name, shapes in zip(*groups.keys.values(), strict=True)]
    called: np.ndarray = np.array(texts, dtype=object)[groups.of_row]
    return called


@lru_cache(16_384)
def _with_shapes(name: str, shapes: object) -> str:
    try:
        known = [shape for shape in json.loads(shapes) if shape] if isinstance(shapes, str) else []
    except ValueError:
        known = []
    return f"{name} of {' × '.join(map(str, known))}" if known else str(name)


def _on_host(trace: RankTrace, windows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """What the launching thread did between a gap's start and the launch that ends it."""
    gaps, of_gap = step_gaps(trace, windows)
    starts = np.maximum(gaps.starts, windows["begin_ns"].to_numpy()[of_gap])
    launched = np.minimum(gaps.launched, windows["end_ns"].to_numpy()[of_gap])
    threads = idle_causes.thread_of_launch(trace, gaps.launch)
    is_held = (threads != NONE) & (launched > starts) & (gaps.lengths >= idle_causes.SHORT_NS)
    numbers = windows["step"].to_numpy()
    for thread in np.unique(threads[is_held]):
        rows = np.flatnonzero(is_held & (threads == thread))
        yield from _of_thread(trace, int(thread), starts[rows], launched[rows], numbers[of_gap[rows]])


def _of_thread(
    trace: RankTrace, thread: int, starts: np.ndarray, launched: np.ndarray, steps: np.ndarray
) -> Iterator[pd.DataFrame]:
    activity = activity_of(trace, thread, Intervals.of(starts, launched))
    query, stretch = _pairs(activity.starts, activity.ends, starts, launched)
    shared = np.minimum(activity.ends[stretch], launched[query]) - np.maximum(activity.starts[stretch], starts[query])
    row = activity.row[stretch]
    events = activity.events["name"]
    is_sync = np.append(host_names.matches(events, host_names.is_sync), False)[row]
    middle = np.maximum(activity.starts[stretch], starts[query]) + shared // 2
    threads = np.full(len(row), thread)
    inside = range_around(trace.ranges, threads, middle)
    is_data = _is_data(trace.ranges, inside)
    if host_names.matches(trace.host_ops["name"], host_names.is_data).any():
        is_data |= _is_data(trace.host_ops, range_around(trace.host_ops, threads, middle))
    part = np.select([is_sync, is_data], [SYNC.column, DATA.column], HOST.column)
    of_steps = set(trace.steps["name"].to_numpy(dtype=object))  # a step's own range says nothing
    ranges = by_letters(taken(trace.ranges["name"].array, inside))
    is_named = np.array([name not in of_steps for name in ranges.categories] + [False])[ranges.codes]
    table = pd.DataFrame({"step": steps[query], "total_ns": shared, "name": _doing(events, row, of_steps)})
    for own_part in np.unique(part):
        rows = part == own_part
        if own_part != DATA.column:
            yield _summed(table[rows], str(own_part), DOING)
        yield _summed(table.assign(name=ranges)[rows & is_named], str(own_part), RANGE)


def _is_data(events: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
    is_data: np.ndarray = np.append(host_names.matches(events["name"], host_names.is_data), False)[rows]
    return is_data


def _doing(events: pd.Series, rows: np.ndarray, of_steps: set[str]) -> pd.Categorical:
    """What each of the rows is called, `NOTHING` for none."""
    called = [_called_on_host(name, of_steps) for name in events.cat.categories]
    texts = sorted({*called, NOTHING})
    place = {text: number for number, text in enumerate(texts)}
    code_of_name = np.array([place[text] for text in (*called, NOTHING)], dtype=np.int64)
    codes = np.append(events.cat.codes.to_numpy(), NONE)[rows]
    return pd.Categorical.from_codes(code_of_name[codes], categories=pd.Index(texts, dtype="str"))


def _called_on_host(name: str, of_steps: set[str]) -> str:
    if name in of_steps:
        return NOTHING
    return MEMORY_CALLS if host_names.is_memory_call(name) else name


def _pairs(
    starts: np.ndarray, ends: np.ndarray, from_ns: np.ndarray, to_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Every query [from, to) with the disjoint stretches [start, end) that it shares time with."""
    first = np.searchsorted(ends, from_ns, side="right")
    count = np.maximum(np.searchsorted(starts, to_ns, side="left") - first, 0)
    query = np.repeat(np.arange(len(from_ns)), count)
    return query, np.arange(len(query)) - np.repeat(np.cumsum(count) - count - first, count)


def _summed(rows: pd.DataFrame, part: str, what: str) -> pd.DataFrame:
    groups = Groups.of(rows, ["step", "name"])
    sums = groups.table(**_sums(groups, rows))
    return sums.assign(name=sums["name"].astype("object"), part=part, what=what)


def _sums(groups: Groups, rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Of what hosts do there are neither calls nor blocks."""
    return {name: groups.sums(rows[name].to_numpy()) if name in rows else groups.sums(np.zeros(len(rows), np.int64))
            for name in _SUMS}  # fmt: skip
