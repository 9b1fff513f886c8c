"""What each step of a rank consists of by name, part by part: to say what is longer than on its peers."""

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack, typed
from traceanalyzer.analyses.blame.step_parts import step_gaps, step_parts
from traceanalyzer.analyses.host import host_names, idle_causes
from traceanalyzer.analyses.host.host_activity import NOTHING, activity_of, names_around
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.schema import NONE
from traceanalyzer.vocabulary import DATA, HOST, SYNC

OPERATOR, KERNEL, COPY, DOING, RANGE = "operator", "kernel", "copy", "doing", "range"
"""What a name is of, best first within a part: an operator with its shapes, a kernel; what the host did, its range."""

COLUMNS = ("step", "part", "what", "name", "total_ns", "calls", "blocks")

_SUMS = ["total_ns", "calls", "blocks"]

_MOST_NAMES = 30


class WhatRan(Result):
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
        "calls": Column.count("How many operations; absent of what hosts do."),
        "blocks": Column.count("Thread blocks of all of them; absent where the trace has no grids."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        step = table["step"].astype("Int64")
        return table.assign(step=step.where(step != NONE))


def per_rank(trace: RankTrace, tree: OperatorTree) -> pd.DataFrame:
    """The longest names of each step and part."""
    return what_ran(trace, step_parts(trace), tree)


def across(parts: Mapping[int, pd.DataFrame]) -> WhatRan:
    """The ranks' rows under each other."""
    return WhatRan(stack(parts, tuple(WhatRan.columns)))


def what_ran(trace: RankTrace, windows: pd.DataFrame, tree: OperatorTree) -> pd.DataFrame:
    """Rows `COLUMNS`: the longest names of each step and part; of idle time what the host did before the launch."""
    if windows.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    tables = [*_on_gpu(trace, tree), *_on_host(trace, windows)]
    table = pd.concat(tables, ignore_index=True)
    table = table[table["step"].isin(windows["step"])]
    # Several threads may do the same.
    table = table.groupby(["step", "part", "what", "name"], sort=False)[_SUMS].sum(min_count=1).reset_index()
    table = table[table["total_ns"] > 0].sort_values("total_ns", ascending=False, kind="stable")
    table = table.groupby(["step", "part", "what"], sort=False).head(_MOST_NAMES)
    types = {"total_ns": "int64", "step": "int64", "calls": "Int64", "blocks": "Int64"}
    return typed(table.reset_index(drop=True), types)[list(COLUMNS)]


def _on_gpu(trace: RankTrace, tree: OperatorTree) -> Iterator[pd.DataFrame]:
    ops = trace.gpu_ops
    numbers = np.append(trace.steps["step"].to_numpy(), NONE)
    table = pd.DataFrame(
        {
            "step": numbers[trace.op_step] if len(trace.steps) else np.full(len(ops), NONE),
            "total_ns": (ops["end_ns"] - ops["start_ns"]).to_numpy(),
            "name": ops["name"].astype("object").to_numpy(),
            "owner": tree.owner,
            "calls": 1.0,
            "blocks": _blocks(ops["grid"]),
        }
    )
    compute, copies = (table[(ops["kind"] == kind).to_numpy()] for kind in ("compute", "copy"))
    yield _summed(compute, "compute_ns", KERNEL)
    yield _summed(copies, "exposed_copy_ns", COPY)
    owned = compute[compute["owner"] >= 0]
    groups = owned.groupby(["step", "owner"])[_SUMS].sum(min_count=1).reset_index()
    yield _summed(groups.assign(name=_called(trace.host_ops, groups["owner"].to_numpy())), "compute_ns", OPERATOR)


def _blocks(grid: pd.Series) -> np.ndarray:
    """Thread blocks of each operation, from `24x1x1`; NaN where the trace has none."""
    counts = [prod(map(int, text.split("x"))) if text.replace("x", "").isdigit() else np.nan for text in _texts(grid)]
    blocks: np.ndarray = np.array([*counts, np.nan])[grid.cat.codes.to_numpy()]
    return blocks


def _texts(grid: pd.Series) -> Iterator[str]:
    return map(str, grid.cat.categories)


def _called(host_ops: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
    """`aten::mm of [8192, 8192] × [8192, 8192]`, by row of the operator."""
    held = host_ops[["name", "shapes"]].iloc[rows].astype("object").reset_index(drop=True)
    distinct = held.drop_duplicates()
    texts = [_with_shapes(name, shapes) for name, shapes in distinct.itertuples(index=False)]
    keys = pd.MultiIndex.from_frame(held.fillna(""))
    position = pd.MultiIndex.from_frame(distinct.fillna("")).get_indexer(keys)
    called: np.ndarray = np.array(texts, dtype=object)[position]
    return called


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
    events = activity.events
    names = np.append(events["name"].astype("object").to_numpy(), NOTHING)[row]
    is_sync = np.append(host_names.matches(events["name"], host_names.is_sync), False)[row]
    middle = np.maximum(activity.starts[stretch], starts[query]) + shared // 2
    inside = names_around(trace.ranges, np.full(len(row), thread), middle)
    operators = names_around(trace.host_ops, np.full(len(row), thread), middle)
    is_data = np.array(
        [_is_data(outer) or _is_data(inner) for outer, inner in zip(inside, operators, strict=True)], bool
    )
    part = np.select([is_sync, is_data], [SYNC.column, DATA.column], HOST.column)
    table = pd.DataFrame({"step": steps[query], "part": part, "total_ns": shared, "name": names, "range": inside})
    for own_part, rows in table.groupby("part"):
        if own_part != DATA.column:
            yield _summed(rows, str(own_part), DOING)
        named = rows[rows["range"].notna() & ~rows["range"].isin(trace.steps["name"])]
        yield _summed(named.assign(name=named["range"]), str(own_part), RANGE)


def _is_data(name: object) -> bool:
    return isinstance(name, str) and host_names.is_data(name)


def _pairs(
    starts: np.ndarray, ends: np.ndarray, from_ns: np.ndarray, to_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Every query [from, to) with the disjoint stretches [start, end) that it shares time with."""
    first = np.searchsorted(ends, from_ns, side="right")
    count = np.maximum(np.searchsorted(starts, to_ns, side="left") - first, 0)
    query = np.repeat(np.arange(len(from_ns)), count)
    return query, np.arange(len(query)) - np.repeat(np.cumsum(count) - count - first, count)


def _summed(rows: pd.DataFrame, part: str, what: str) -> pd.DataFrame:
    counted = rows.reindex(columns=[*rows.columns, *(name for name in _SUMS if name not in rows)])
    sums = counted.groupby(["step", "name"], observed=True)[_SUMS].sum(min_count=1).reset_index()
    return sums.assign(part=part, what=what)
