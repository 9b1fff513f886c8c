"""What the CPU itself does in a step, thread by thread, and how much of that the GPU spends idle."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, joined, percent, stack
from traceanalyzer.analyses.blocks import row_blocks
from traceanalyzer.analyses.grouping import Groups, largest_before
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.host_time import TIMES, launches_inside, steps_of_hosts, times_of, with_steps
from traceanalyzer.analyses.host.thread_roles import OTHER, thread_roles
from traceanalyzer.analyses.names import HostWorkColumn
from traceanalyzer.meaning.columns import Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import is_name, mask_of, text_array, texts_of, whole
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, picked, sorted_by, table_of, with_columns
from traceanalyzer.selection import step_at

RANGE, OPERATOR, COLLECTIVE = "range", "operator", "collective"

_WRAPPER_SHARE = 0.5
"""A range that takes this much of a step and holds other ranges says no more than the step does."""


class HostWork(Result[HostWorkColumn]):
    """One row for each rank, role of a thread, and range or operator at the top of its stack; longest first."""

    title: ClassVar[str] = "Work on the CPU"
    keys: ClassVar[tuple[str, ...]] = ("rank", "role", "what", "name")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "role": Column.text(
            "What the thread is for: main (it runs the steps), autograd, data loader, collectives (gloo's), other."
        ),
        "what": Column.text(
            "range (of the user or the framework), collective (run by the CPU), or operator outside of both."
        ),
        "name": Column.text(
            "Its name. Ranges that span half of a step, on average, and hold others count as the step itself, "
            "not as a row.",
            written=Written.KERNEL,
        ),
        "threads": Column.count("Threads of this role that did it.", is_compared=False),
        "calls": Column.count(
            "How often, in the complete steps; in the whole capture where there are none.", is_aside=True
        ),
        "launches": Column.count("Calls in it that started GPU work: with none, the work is the CPU's own."),
        "input_bytes": Column.size(
            "Of collectives: bytes of this rank's inputs; absent where the trace has no shapes.", is_aside=True
        ),
        "host_ns": Column.time("Time in which a thread of this role is in it; what lies inside it is part of it."),
        **TIMES,
        "idle_pct": Column.share(
            "100 · GPU idle time in it / the time in it between the first and last GPU operation.", better=Better.LESS
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(with_steps(table), {"idle_pct": percent(table["idle_ns"], table["seen_ns"])})


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's top-level ranges, collectives and operators of its complete steps, else of the whole capture."""
    if trace.ranges.empty and trace.host_ops.empty:
        return pd.DataFrame()
    steps = steps_of_hosts(trace)
    events = _inside(_top_level(trace), steps)
    if events.empty:
        return pd.DataFrame()
    starts, ends = array_of(events, "start_ns"), array_of(events, "end_ns")
    threads, of_thread = np.unique(array_of(events, "thread"), return_inverse=True)
    roles = thread_roles(trace)
    role = np.array([roles.get(thread, OTHER) for thread in threads.tolist()], dtype=object)[of_thread]
    keys = {"role": role, "what": column_of(events, "what"), "name": column_of(events, "name")}
    groups = Groups.of(keys, [*keys], by_appearance=True)
    sizes = column_of(events, "size_bytes")
    size_bytes = groups.sums(whole(sizes, 0))
    times = times_of(trace, groups, starts, ends, steps)
    order = np.argsort(-times["host_ns"], kind="stable")
    texts = {"role": groups.keys["role"], **{name: texts_of(groups.keys[name]) for name in ("what", "name")}}
    names = {name: text_array(own) for name, own in texts.items()}
    total: dict[str, Any] = {
        **names,
        "threads": groups.distinct(of_thread),
        "calls": groups.counts(),
        "launches": groups.sums(launches_inside(trace, events)),
        "input_bytes": pd.arrays.IntegerArray(size_bytes, groups.any(np.asarray(sizes.isna()))),
        **times,
    }
    return table_of({name: values[order] for name, values in total.items()})


def across(parts: Mapping[int, pd.DataFrame]) -> HostWork:
    """The ranks' rows, longest first."""
    table = stack(parts, tuple(HostWork.columns))
    return HostWork(sorted_by(table, "host_ns"))


def times_to_compare(host_work: HostWork) -> tuple[pd.DataFrame, bool]:
    """The rows with `time_ns`, of a mean step; where not all ranks have steps (false), of the whole capture."""
    frame: pd.DataFrame = host_work.to_frame()
    is_of_steps = bool(frame["steps"].notna().all())
    return frame.assign(time_ns=frame["host_per_step_ns" if is_of_steps else "host_ns"].astype("float64")), is_of_steps


_WHATS = pd.CategoricalDtype([RANGE, COLLECTIVE, OPERATOR])


def _top_level(trace: RankTrace) -> pd.DataFrame:
    """Ranges and collectives that lie in no other, and operators outside of them, on each thread."""
    names = column_of(trace.ranges, "name")
    is_collective = mask_of(names, host_names.is_cpu_collective)
    is_place = mask_of(names, host_names.is_user_range)
    is_step = is_name(names, *column_of(trace.steps, "name").categories.tolist())
    ranges = np.flatnonzero((is_place | is_collective) & ~is_step)
    ranges = ranges[~_wraps(trace, ranges)]
    operators = _outer(trace.host_ops)
    count = len(operators)
    starts, ends, threads = (
        np.concatenate([array_of(trace.ranges, name)[ranges], array_of(trace.host_ops, name)[operators]])
        for name in ("start_ns", "end_ns", "thread")
    )
    # Ranges before operators of the same times; the longer first.
    is_operator = np.arange(len(starts)) >= len(ranges)
    order = np.lexsort((is_operator, -ends, starts, threads))
    order = order[ends[order] > largest_before(ends[order], threads[order])]
    called = joined([names[ranges], column_of(trace.host_ops, "name")[operators]])
    sizes = column_of(trace.ranges, "size_bytes")[ranges]
    size_bytes, is_absent = sizes.to_numpy(dtype=np.int64, na_value=1), np.asarray(sizes.isna())
    what = np.where(is_operator, 2, np.append(is_collective[ranges], np.zeros(count, dtype=bool)))
    columns = {
        "start_ns": starts[order],
        "end_ns": ends[order],
        "name": called[order],
        "thread": threads[order],
        "size_bytes": pd.arrays.IntegerArray(
            np.append(size_bytes, np.ones(count, dtype=np.int64))[order],
            np.append(is_absent, np.ones(count, dtype=bool))[order],
        ),
        "what": pd.Categorical.from_codes(what[order], dtype=_WHATS),
    }
    return table_of(columns)


def _outer(host_ops: pd.DataFrame) -> np.ndarray:
    """Operators that lie in no other of those before them in their block: all that lie in none, and a few more."""
    ends, threads = array_of(host_ops, "end_ns"), array_of(host_ops, "thread")
    found = []
    for rows in row_blocks(len(host_ops)):
        before = largest_before(ends[rows], threads[rows])
        found.append(rows.start + np.flatnonzero((before == NONE) | (ends[rows] > before)))
    return np.concatenate(found)


def _wraps(trace: RankTrace, rows: np.ndarray) -> np.ndarray:
    """Which of these ranges take half of a step and hold another one of their thread: all of a name, or none.

    By its calls together: one that spans half of some steps only would else hide what it holds in the others.
    """
    begins, until = (array_of(trace.steps, name) for name in ("host_start_ns", "host_end_ns"))
    starts, ends, threads = (array_of(trace.ranges, name)[rows] for name in ("start_ns", "end_ns", "thread"))
    row = step_at(begins, until, starts)
    order = np.lexsort((-ends, starts, threads))
    holds = np.zeros(len(rows), dtype=bool)
    holds[order[:-1]] = (starts[order[1:]] < ends[order[:-1]]) & (threads[order[1:]] == threads[order[:-1]])
    names: Any = column_of(trace.ranges, "name")
    groups = Groups.of({"name": names[rows].codes, "thread": threads}, ["name", "thread"])
    is_inside, lengths = row != NONE, np.append(until - begins, 0)[row]
    own_ns, steps_ns = (groups.sums(np.where(is_inside, ns, 0)) for ns in (ends - starts, lengths))
    is_long = (own_ns >= _WRAPPER_SHARE * steps_ns) & (steps_ns > 0)
    is_around = 2 * groups.sums(holds & is_inside) >= groups.sums(is_inside)
    wraps: np.ndarray = (is_long & is_around)[groups.of_row]
    return wraps


def _inside(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Events that begin in a step, cut at its end; all of them without steps."""
    if steps.empty:
        return events
    ends = array_of(steps, "host_end_ns")
    row = step_at(array_of(steps, "host_start_ns"), ends, array_of(events, "start_ns"))
    held = row != NONE
    inside = picked(events, held)
    return with_columns(inside, end_ns=np.minimum(array_of(inside, "end_ns"), ends[row[held]]))
