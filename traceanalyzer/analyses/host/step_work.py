"""What each step of a rank consists of by name, on the GPU and on the host: to name what is longer than elsewhere."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import typed
from traceanalyzer.analyses.grouping import Groups, first_of_each, rows_of_each
from traceanalyzer.analyses.host.host_activity import innermost
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.selection import step_at

COMPUTE, COPY, RANGE, OPERATOR = "compute", "copy", "range", "operator"

_MOST_NAMES = 40


def step_work(trace: RankTrace) -> pd.DataFrame:
    """Rows `what`, `step`, `name`, `total_ns`: the longest names of each step.

    Kernels and copies count in the step that launched them; user ranges, without those inside them, and outermost
    operators in the one in which they began. Without steps, all is of step -1.
    """
    if trace.gpu_ops.empty and trace.ranges.empty and trace.host_ops.empty:
        return pd.DataFrame()
    ops = trace.gpu_ops[["start_ns", "end_ns", "name", "kind"]].assign(row=trace.op_step)
    tables = [
        _named(ops[ops["kind"] == COMPUTE], COMPUTE),
        _named(ops[ops["kind"] == COPY], COPY),
        _named(_on_host(trace, _without_steps(trace)), RANGE),
        _named(_on_host(trace, _outermost(trace.host_ops)), OPERATOR),
    ]
    table = pd.concat(tables, ignore_index=True)
    numbers = np.append(trace.steps["step"].to_numpy(), NONE)
    return table.assign(step=numbers[table["step"].to_numpy()])


def _named(events: pd.DataFrame, what: str) -> pd.DataFrame:
    groups = Groups.of(events, ["row", "name"])
    sums = groups.sums((events["end_ns"] - events["start_ns"]).to_numpy())
    columns = {"step": groups.keys["row"], "name": pd.Series(groups.keys["name"]).astype("str"), "total_ns": sums}
    table = pd.DataFrame(columns, copy=False).sort_values("total_ns", ascending=False)
    held = first_of_each(table["step"].to_numpy(), _MOST_NAMES)
    return table[held].assign(what=what)


def _on_host(trace: RankTrace, events: pd.DataFrame) -> pd.DataFrame:
    starts, ends = (trace.steps[name].to_numpy() for name in ("host_start_ns", "host_end_ns"))
    return events.assign(row=step_at(starts, ends, events["start_ns"].to_numpy()))


def _without_steps(trace: RankTrace) -> pd.DataFrame:
    """The stretches of every thread by the innermost of the user's ranges, steps aside."""
    ranges = trace.ranges[~trace.ranges["name"].isin(trace.steps["name"])]
    parts = [_innermost_of(own.reset_index(drop=True)) for _, own in ranges.groupby("thread")]
    return typed(pd.concat([ranges.iloc[:0], *parts], ignore_index=True), {"name": "str"})


def _innermost_of(ranges: pd.DataFrame) -> pd.DataFrame:
    starts, ends, row = innermost(ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy())
    held = row != NONE
    own = ranges.take(row[held]).reset_index(drop=True)
    return own.assign(start_ns=starts[held], end_ns=ends[held])


def _outermost(events: pd.DataFrame) -> pd.DataFrame:
    """Operators that no other one of their thread contains."""
    events = events[["start_ns", "end_ns", "name", "thread"]]
    starts, ends = events["start_ns"].to_numpy(), events["end_ns"].to_numpy()
    is_outermost = np.ones(len(events), dtype=bool)
    for rows in rows_of_each(events["thread"].to_numpy()):
        is_outermost[rows[1:]] = starts[rows[1:]] >= np.maximum.accumulate(ends[rows])[:-1]
    return events[is_outermost]
