"""What each step of a rank consists of by name, part by part: to say what is longer than on its peers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, is_any, stack
from traceanalyzer.analyses.blame.step_parts import step_gaps
from traceanalyzer.analyses.blame.telling_threads import who_tells
from traceanalyzer.analyses.blame.work_names import Names, as_names, called, names_of
from traceanalyzer.analyses.grouping import Groups, first_of_each
from traceanalyzer.analyses.host import host_names, idle_causes, other_threads
from traceanalyzer.analyses.host.compilations import compiler_of
from traceanalyzer.analyses.host.host_activity import NOTHING, Activity, Around, activity_of, range_around
from traceanalyzer.analyses.kernels.time_slices import taken_of
from traceanalyzer.analyses.names import WhatRanColumn
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.time.intervals import Intervals, overlapping
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.meaning.vocabulary import DATA, HOST, SHORT_NS, SYNC
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, table_of, without_rows

OPERATOR, KERNEL, COPY, DOING, RANGE, SLICE = "operator", "kernel", "copy", "doing", "range", "slice"
"""What a name is of, best first within a part: an operator with its shapes, a kernel; what the host did, its range; the
time that another process has the GPU."""

OTHER_PROCESS = "another process"
"""The name of such time (`time_slices`)."""

MEMORY_CALLS = "calls for GPU memory"
COMPILING = "compiling by "
"""What stands for `cudaMalloc`, `cudaFree` and their like: an allocator that takes memory anew runs both in turn."""

COLUMNS = ("step", "part", "what", "name", "total_ns", "calls", "work")

_SUMS = ("total_ns", "calls", "work")

_WORK = 2**40 - 1
"""So much is kept of the sum of works' numbers: sums over many steps are whole as floats, too."""

_NOTHING_HELD = {name: np.empty(0, dtype=object if name in ("part", "what", "name") else np.int64) for name in COLUMNS}

MOST_NAMES = 100
"""The longest of what computes are kept: one that is not among so many takes no longer than the last of them."""

_MOST_OTHERS = 30
"""Of what hosts do and of copies, of which only the longest is named."""

_DOINGS = sorted((SYNC.column, DATA.column, HOST.column))
"""Parts of idle time that say what the host did."""


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
            "operator (with its shapes), kernel, copy; slice (of kernels' time what another process has the GPU, as "
            "`time_slices` has it); of idle time doing (the innermost call, operator, range or "
            "Python frame); range (the user's innermost range, of kernels that around their launch)."
        ),
        "name": Column.text("Its name.", written=Written.KERNEL),
        "total_ns": Column.time("Summed durations; of idle time only what lies in it."),
        "calls": Column.count("How many operations; 0 of what hosts do."),
        "work": Column.ident(
            "What they do, as a number: rows of one name whose calls and numbers are alike did the same work "
            "(operators, shapes, element types, grids and blocks, as far as they are recorded); 0 of what hosts do."
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        step = table["step"].astype("Int64")
        return self._with(table, {"step": step.where(step != NONE)})


def per_rank(
    trace: RankTrace, tree: OperatorTree, same_work: np.ndarray, parts_of_steps: pd.DataFrame,
    doings: Mapping[str, np.ndarray],
) -> pd.DataFrame:  # fmt: skip
    """The longest names of each step and part."""
    if parts_of_steps.empty:
        return without_rows(COLUMNS)
    parts = (_longest(_on_gpu(trace, tree, same_work), parts_of_steps), doings)
    table = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
    order = np.argsort(-table["total_ns"], kind="stable")
    return table_of({name: column[order] for name, column in table.items()})


def longest_doings(trace: RankTrace, parts_of_steps: pd.DataFrame) -> Mapping[str, np.ndarray]:
    """Columns `COLUMNS` of the longest that the host did in the idle time of each step, before launches."""
    return _NOTHING_HELD if parts_of_steps.empty else _longest(_on_host(trace, parts_of_steps), parts_of_steps)


def across(parts: Mapping[int, pd.DataFrame]) -> WhatRan:
    """The ranks' rows under each other."""
    return WhatRan(stack(parts, tuple(WhatRan.columns)))


def _longest(parts: Iterable[Mapping[str, np.ndarray]], windows: pd.DataFrame) -> Mapping[str, np.ndarray]:
    """Columns `COLUMNS`, longest first: of each step and part the longest names."""
    table = {name: np.concatenate(columns) for name, columns in _by_column(parts).items()}
    is_held = np.isin(table["step"], array_of(windows, "step"))
    codes = {name: pd.factorize(table[name][is_held])[0] for name in ("part", "what", "name")}
    # Several threads may do the same.
    keys = {"step": table["step"][is_held], **codes}
    groups = Groups.of(keys, list(keys), by_appearance=True)
    sums = {name: groups.sums(table[name][is_held]) for name in _SUMS}
    order = np.argsort(-sums["total_ns"], kind="stable")
    order = order[sums["total_ns"][order] > 0]
    firsts = groups.first[order]
    is_compute = table["part"][is_held][firsts] == "compute_ns"
    held = first_of_each(
        Groups.of({name: own[firsts] for name, own in keys.items()}, ["step", "part", "what"]).of_row,
        np.where(is_compute, MOST_NAMES, _MOST_OTHERS),
    )
    rows = np.flatnonzero(is_held)[firsts[held]]
    return {name: sums[name][order][held] if name in _SUMS else table[name][rows] for name in COLUMNS}


def _by_column(parts: Iterable[Mapping[str, np.ndarray]]) -> Mapping[str, list[np.ndarray]]:
    held = [_NOTHING_HELD, *parts]
    return {name: [part[name] for part in held] for name in COLUMNS}


def _on_gpu(trace: RankTrace, tree: OperatorTree, same_work: np.ndarray) -> Iterator[Mapping[str, np.ndarray]]:
    ops, kind = trace.gpu_ops, trace.gpu_ops["kind"]
    numbers = np.append(array_of(trace.steps, "step"), NONE)
    step = numbers[trace.op_step] if len(trace.steps) else np.full(len(ops), NONE)
    total_ns = array_of(ops, "end_ns") - array_of(ops, "start_ns")
    names = names_of(ops)
    is_compute, is_copy = is_any(kind, "compute"), is_any(kind, "copy")
    for held, part, what in ((is_compute, "compute_ns", KERNEL), (is_copy, "exposed_copy_ns", COPY)):
        rows = np.flatnonzero(held)
        yield _summed(step[rows], names.take(rows), total_ns[rows], part, what, same_work[rows])
    rows = np.flatnonzero(is_compute)
    taken_ns = taken_of(ops, rows, step[rows], same_work[rows])
    taken = rows[taken_ns > 0]
    others = as_names([OTHER_PROCESS], np.zeros(len(taken), dtype=np.int64))
    yield _summed(step[taken], others, taken_ns[taken_ns > 0], "compute_ns", SLICE)
    owned = np.flatnonzero(is_compute & (tree.owner >= 0))
    owners, owner = np.unique(tree.owner[owned], return_inverse=True)
    operators = called(trace.host_ops, owners).take(owner)
    yield _summed(step[owned], operators, total_ns[owned], "compute_ns", OPERATOR, same_work[owned])
    if len(trace.ranges):
        rows = np.flatnonzero(is_compute)
        inside = _range_of_launch(trace, array_of(ops, "launch")[rows])
        ranges, is_named = _named_ranges(trace, inside)
        rows = rows[is_named]
        yield _summed(step[rows], ranges.take(is_named), total_ns[rows], "compute_ns", RANGE)


def _range_of_launch(trace: RankTrace, launch: np.ndarray) -> np.ndarray:
    """Row of the user's innermost range around each launch; -1 where there is none."""
    threads = idle_causes.thread_of_launch(trace, launch)
    starts = np.append(array_of(trace.api_calls, "start_ns"), NONE)[launch]
    return range_around(trace.ranges, threads, starts)


def _named_ranges(trace: RankTrace, rows: np.ndarray) -> tuple[Names, np.ndarray]:
    """Names of ranges by row, and which say something: a step's own range does not."""
    of_steps = _step_names(trace)
    names = names_of(trace.ranges)
    codes = np.append(names.codes, NONE)[rows]
    return Names(codes, names.texts), np.array([*(name not in of_steps for name in names.texts), False])[codes]


def _step_names(trace: RankTrace) -> set[str]:
    names: Any = column_of(trace.steps, "name")
    return {names.categories[code] for code in {*names.codes.tolist()} - {NONE}}


def _on_host(trace: RankTrace, windows: pd.DataFrame) -> Iterator[Mapping[str, np.ndarray]]:
    """What the launching thread did between a gap's start and the launch that ends it."""
    gaps, of_gap = step_gaps(trace, windows)
    starts = np.maximum(gaps.starts, array_of(windows, "begin_ns")[of_gap])
    launched = np.minimum(gaps.launched, array_of(windows, "end_ns")[of_gap])
    threads = idle_causes.thread_of_launch(trace, gaps.launch)
    is_held = (threads != NONE) & (launched > starts) & (gaps.lengths >= SHORT_NS)
    numbers = array_of(windows, "step")
    for thread in np.unique(threads[is_held]):
        rows = np.flatnonzero(is_held & (threads == thread))
        for one, since, until, held in who_tells(trace, int(thread), starts[rows], launched[rows]):
            yield from _of_thread(trace, one, since, until, numbers[of_gap[rows[held]]])


def _of_thread(
    trace: RankTrace, thread: int, starts: np.ndarray, launched: np.ndarray, steps: np.ndarray
) -> Iterator[Mapping[str, np.ndarray]]:
    ranges, has_data = Around.of(trace.ranges, thread), host_names.matches(trace.host_ops["name"], host_names.is_data)
    operators = Around.of(trace.host_ops, thread) if has_data.any() else None
    found: dict[tuple[str, str], list[Mapping[str, np.ndarray]]] = {}
    for held, activity in activity_of(trace, thread, starts, launched):
        query, stretch = overlapping(starts[held], launched[held], Intervals(activity.starts, activity.ends))
        since = np.maximum(activity.starts[stretch], starts[held][query])
        shared = np.minimum(activity.ends[stretch], launched[held][query]) - since
        middle = since + shared // 2
        inside = ranges.at(middle)
        is_data = _is_data(trace.ranges, inside)
        if operators is not None:
            is_data |= np.append(has_data, False)[operators.at(middle)]
        part = _parts(activity, stretch, is_data)
        own_steps, (named, is_named) = steps[held][query], _named_ranges(trace, inside)
        doing = _with_others(trace, thread, activity, stretch, _doing(activity, stretch, _step_names(trace)))
        for number in np.flatnonzero(np.bincount(part)).tolist():
            rows, own_part = np.flatnonzero(part == number), _DOINGS[number]
            for what, names, own in ((DOING, doing, rows), (RANGE, named, rows[is_named[rows]])):
                sums = _summed(own_steps[own], names.take(own), shared[own], own_part, what)
                found.setdefault((own_part, what), []).append(sums)
    for own_part, what in ((own_part, what) for own_part in _DOINGS for what in (DOING, RANGE)):
        if (own_part, what) in found and (own_part, what) != (DATA.column, DOING):
            yield _added_up(found[own_part, what], own_part, what)


def _added_up(blocks: Sequence[Mapping[str, np.ndarray]], part: str, what: str) -> Mapping[str, np.ndarray]:
    """Sums of several blocks: a step or a name may be in several of them."""
    step, name, total_ns = (np.concatenate([own[name] for own in blocks]) for name in ("step", "name", "total_ns"))
    codes, texts = pd.factorize(name)
    return _summed(step, as_names(texts.tolist(), codes), total_ns, part, what)


def _parts(activity: Activity, stretch: np.ndarray, is_data: np.ndarray) -> np.ndarray:
    """Position in `_DOINGS` of what each of these stretches counts as."""
    is_sync = np.array([*map(host_names.is_sync, activity.names), False], dtype=bool)[activity.code[stretch]]
    places = (_DOINGS.index(SYNC.column), _DOINGS.index(DATA.column))
    return np.select([is_sync, is_data], places, _DOINGS.index(HOST.column))


def _with_others(trace: RankTrace, thread: int, activity: Activity, stretch: np.ndarray, doing: Names) -> Names:
    """What is done, where nothing is recorded with what another thread runs in Python meanwhile."""
    place = doing.texts.index(NOTHING)
    nothing = np.flatnonzero(doing.codes == place)
    rows = np.unique(stretch[nothing])
    frames = other_threads.beside(trace, thread, activity.starts[rows], activity.ends[rows])
    told = [None if frame is None else f"{other_threads.BESIDE}{frame}" for frame in frames]
    if not any(told):
        return doing
    texts = [*doing.texts, *dict.fromkeys(text for text in told if text)]
    of_row = np.array([place if text is None else texts.index(text) for text in told])
    codes = doing.codes.copy()
    codes[nothing] = of_row[np.searchsorted(rows, stretch[nothing])]
    return as_names(texts, codes)


def _is_data(events: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
    is_data: np.ndarray = np.append(host_names.matches(events["name"], host_names.is_data), False)[rows]
    return is_data


def _doing(activity: Activity, stretch: np.ndarray, of_steps: set[str]) -> Names:
    """What the innermost events of these stretches are called, `NOTHING` for those without one."""
    told, code = [_called_on_host(name, of_steps) for name in activity.names], activity.code[stretch]
    return as_names([*told, NOTHING], np.where(code == NONE, len(told), code))


def _called_on_host(name: str, of_steps: set[str]) -> str:
    if name in of_steps:
        return NOTHING
    compiler = compiler_of(name)
    if compiler is not None:
        return COMPILING + compiler
    return MEMORY_CALLS if host_names.is_memory_call(name) else name


def _summed(
    step: np.ndarray,
    names: Names,
    total_ns: np.ndarray,
    part: str,
    what: str,
    work: np.ndarray | None = None,
) -> Mapping[str, np.ndarray]:
    """Columns `COLUMNS`, a row for each step and name; of what hosts do there are neither calls nor work."""
    held = np.flatnonzero(names.codes != NONE)
    groups = Groups.of_numbers(step[held] * len(names.texts) + names.codes[held])
    firsts, none = held[groups.first], np.zeros(len(groups), dtype=np.int64)
    return {
        "step": step[firsts],
        "part": np.full(len(groups), part, dtype=object),
        "what": np.full(len(groups), what, dtype=object),
        "name": np.array(names.texts, dtype=object)[names.codes[firsts]],
        "total_ns": groups.sums(total_ns[held]),
        "calls": none if work is None else groups.counts(),
        "work": none if work is None else groups.sums(work[held] & _WORK) & _WORK,
    }
