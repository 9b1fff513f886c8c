"""Each gap of the GPU: how long, by which causes, and what the host was doing in it."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, all_known, stack
from traceanalyzer.analyses.host import idle_causes
from traceanalyzer.analyses.host.host_activity import longest, names_around_launches, thread_activity, user_ranges
from traceanalyzer.analyses.host.idle_causes import CAUSES, Gaps
from traceanalyzer.analyses.names import GapTableColumn
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.meaning.vocabulary import GAP_CAUSES, LAUNCH_NS, SHORT_NS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import as_objects, known_of, whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, table_of

_KEYS = {cause.column: cause.key for cause in GAP_CAUSES}


class GapTable(Result[GapTableColumn]):
    """One row for each stretch of 5 µs or more in which the rank's GPU runs nothing; its causes add up to it."""

    title: ClassVar[str] = "Gaps"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "gap")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "gap": Column.ident("Position among the rank's gaps."),
        "step": Column.ident("Step whose GPU window it begins in; absent for none."),
        "start_ns": Column.moment("End of the operation before it, or where the window begins."),
        "end_ns": Column.moment("Start of the operation after it, or where the window ends."),
        "length_ns": Column.time("End − start."),
        "cause": Column.text(f"The cause with the largest part: {', '.join(cause.key for cause in GAP_CAUSES)}."),
        **{cause.column: Column.time(cause.definition) for cause in GAP_CAUSES},
        "doing": Column.text(
            "What the launching thread did for longest before the launch: the innermost recorded call, operator "
            "or range; absent when the operation was already launched.",
            written=Written.KERNEL,
        ),
        "doing_what": Column.text("synchronising call, API call, operator or range; absent when nothing was recorded."),
        "doing_ns": Column.time("For how long in the gap."),
        "range": Column.text("The user's innermost range around the launch.", written=Written.KERNEL),
        "ended_by": Column.text("The operation that ends the gap; absent after the last one.", written=Written.KERNEL),
        "ended_by_kind": Column.text("Its kind."),
        "ended_by_stream": Column.ident("Its stream."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"length_ns": table["end_ns"] - table["start_ns"]})


def per_rank(trace: RankTrace, idle_short_ns: int = SHORT_NS, idle_launch_ns: int = LAUNCH_NS) -> pd.DataFrame:
    """The rank's gaps inside the window, of `idle_short_ns` and more."""
    gaps = idle_causes.find(trace)
    window = trace.window
    stretch = window.touched(gaps.starts, gaps.ends)
    is_held = (gaps.lengths >= idle_short_ns) & (stretch != NONE)
    gaps = gaps.take(is_held)
    if not len(gaps):
        return pd.DataFrame()
    limits = {"short_ns": idle_short_ns, "launch_ns": idle_launch_ns}
    begin, end = window.starts[stretch[is_held]], window.ends[stretch[is_held]]
    causes = idle_causes.parts(trace, gaps, begin, end, **limits)
    starts = np.maximum(gaps.starts, begin)
    ops = trace.gpu_ops
    by_cause = {cause: array_of(causes, cause) for cause in CAUSES}
    follows = np.where(array_of(ops, "start_ns")[gaps.ended_by] < gaps.ends, NONE, gaps.ended_by)
    longest_cause = np.stack([*by_cause.values()]).argmax(axis=0)
    return table_of(
        {
            "gap": np.arange(len(gaps)),
            "step": step_of_time(trace, starts),
            "start_ns": starts,
            "end_ns": np.minimum(gaps.ends, end),
            "cause": np.array([_KEYS[cause] for cause in CAUSES], dtype=object)[longest_cause],
            **by_cause,
            **_doing(trace, gaps),
            "range": names_around_launches(user_ranges(trace), trace, gaps.launch),
            # Names stay numbered: as texts those of kernels take as much as all other columns together.
            "ended_by": column_of(ops, "name").take(follows, allow_fill=True),
            "ended_by_kind": column_of(ops, "kind").take(follows, allow_fill=True),
            "ended_by_stream": all_known(array_of(ops, "stream")).take(follows, allow_fill=True),
        },
    )


def across(parts: Mapping[int, pd.DataFrame]) -> GapTable:
    """The ranks' gaps under each other."""
    return GapTable(stack(parts, tuple(GapTable.columns)))


def step_of_time(trace: RankTrace, times: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """Number of the step whose GPU window holds each time, NA where none does."""
    held = known_of(trace.steps, "start_ns")
    if not held.any():
        return pd.array([pd.NA] * len(times), dtype="Int64")
    starts, ends = (whole_of(trace.steps, name)[held] for name in ("start_ns", "end_ns"))
    row = np.searchsorted(starts, times, side="right") - 1
    is_inside = (row >= 0) & (times < ends[row])
    return pd.arrays.IntegerArray(array_of(trace.steps, "step")[held][row], ~is_inside)


def _doing(trace: RankTrace, gaps: Gaps) -> dict[str, Any]:
    """What the launching thread did for longest between each gap's start and the launch."""
    doing, what = np.full(len(gaps), None, dtype=object), np.full(len(gaps), None, dtype=object)
    lengths, is_known = np.zeros(len(gaps), dtype=np.int64), np.zeros(len(gaps), dtype=bool)
    threads = idle_causes.thread_of_launch(trace, gaps.launch)
    is_before = gaps.launched > gaps.starts
    for thread in np.unique(threads[(threads != NONE) & is_before]):
        rows = np.flatnonzero((threads == thread) & is_before)
        starts, ends = gaps.starts[rows], gaps.launched[rows]
        for held, activity in thread_activity(trace, int(thread), starts, ends):
            own = rows[held]
            doing[own], what[own], lengths[own] = longest(activity, starts[held], ends[held])
        is_known[rows] = True
    doing_ns = pd.arrays.IntegerArray(lengths, ~is_known)
    return {"doing": as_objects(doing), "doing_what": as_objects(what), "doing_ns": doing_ns}
