"""What each step of a rank consists of by name, on the GPU and on the host: to name what is longer than elsewhere."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import picked
from traceanalyzer.analyses.grouping import Groups, by_letters, first_of_each, rows_of_each
from traceanalyzer.analyses.host import host_names
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
    kind = trace.gpu_ops["kind"]
    tables = [
        _named(_on_gpu(trace, (kind == COMPUTE).to_numpy()), COMPUTE),
        _named(_on_gpu(trace, (kind == COPY).to_numpy()), COPY),
        _named(_on_host(trace, _without_steps(trace)), RANGE),
        _named(_on_host(trace, _outermost(trace.host_ops)), OPERATOR),
    ]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    columns["step"] = np.append(trace.steps["step"].to_numpy(), NONE)[columns["step"]]
    columns["name"] = pd.Series(columns["name"], dtype="str").array
    return pd.DataFrame(columns, copy=False)


def _named(events: pd.DataFrame, what: str) -> dict[str, np.ndarray]:
    groups = Groups.of(events, ["row", "name"])
    sums = groups.sums((events["end_ns"] - events["start_ns"]).to_numpy())
    order = np.argsort(-sums, kind="stable")
    rows = order[first_of_each(groups.keys["row"].to_numpy()[order], _MOST_NAMES)]
    names = np.asarray(groups.keys["name"][rows], dtype=object)
    step = groups.keys["row"].to_numpy()[rows]
    return {"step": step, "name": names, "total_ns": sums[rows], "what": np.full(len(rows), what, dtype=object)}


def _on_gpu(trace: RankTrace, mask: np.ndarray) -> pd.DataFrame:
    return picked(trace.gpu_ops, mask, ["start_ns", "end_ns", "name"]).assign(row=trace.op_step[mask])


def _on_host(trace: RankTrace, events: pd.DataFrame) -> pd.DataFrame:
    starts, ends = (trace.steps[name].to_numpy() for name in ("host_start_ns", "host_end_ns"))
    return events.assign(row=step_at(starts, ends, events["start_ns"].to_numpy()))


def _without_steps(trace: RankTrace) -> pd.DataFrame:
    """The stretches of every thread by the innermost of the user's ranges, steps aside."""
    is_step = host_names.matches(trace.ranges["name"], set(trace.steps["name"].cat.categories).__contains__)
    ranges = np.flatnonzero(~is_step)
    begins, until, threads = (trace.ranges[name].to_numpy()[ranges] for name in ("start_ns", "end_ns", "thread"))
    empty = np.empty(0, dtype=np.int64)
    parts = [(empty, empty, empty)]
    for own in rows_of_each(threads):
        starts, ends, row = innermost(begins[own], until[own])
        held = row != NONE
        parts.append((starts[held], ends[held], ranges[own[row[held]]]))
    starts, ends, rows = (np.concatenate(each) for each in zip(*parts, strict=True))
    return pd.DataFrame(
        {"start_ns": starts, "end_ns": ends, "name": by_letters(trace.ranges["name"].array)[rows]}, copy=False
    )


def _outermost(events: pd.DataFrame) -> pd.DataFrame:
    """Operators that no other one of their thread contains."""
    starts, ends = events["start_ns"].to_numpy(), events["end_ns"].to_numpy()
    is_outermost = np.ones(len(events), dtype=bool)
    for rows in rows_of_each(events["thread"].to_numpy()):
        is_outermost[rows[1:]] = starts[rows[1:]] >= np.maximum.accumulate(ends[rows])[:-1]
    return picked(events, is_outermost, ["start_ns", "end_ns", "name"])
