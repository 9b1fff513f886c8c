"""By how much each operation could end later without making the job longer."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from traceanalyzer.analyses.base import Result, typed
from traceanalyzer.analyses.names import SlackColumn
from traceanalyzer.analyses.replay.job import Job
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, table_of, without_rows


class Slack(Result[SlackColumn]):
    """One row for each name and kind of operation of the complete steps, those with least slack and most time first."""

    title: ClassVar[str] = "Slack"
    keys: ClassVar[tuple[str, ...]] = ("kind", "name")
    columns: ClassVar[Mapping[str, Column]] = {
        "kind": Column.text("compute, copy or comm.", written=Written.KIND),
        "name": Column.text("Name of the kernel or copy.", written=Written.KERNEL),
        "calls": Column.count("How often it runs, on all ranks."),
        "total_ns": Column.time("Sum of its durations."),
        "least_slack_ns": Column.time(
            "By how much the most urgent one could end later before the last step ends later; 0 on the critical path.",
            adds=Adds.EXTREME,
        ),
        "median_slack_ns": Column.time("The same of the median one.", adds=Adds.DERIVED),
        "urgent_calls": Column.count("Those that can end no later at all."),
        "urgent_ns": Column.time("Sum of their durations: an upper bound of what a faster kernel gains at first."),
    }


def across(_parts: Mapping[int, pd.DataFrame], replay: Replay) -> Slack:
    """Group the operations of all ranks by name."""
    if replay.engine is None:
        return Slack(without_rows(Slack.columns))
    table = _of_all(replay.engine.job, replay.engine.slack_of_ops)
    table["urgent_ns"] = table["duration_ns"].where(table["slack_ns"] == 0, 0)
    table["is_urgent"] = table["slack_ns"] == 0
    groups = table.groupby(["kind", "name"], observed=True)
    found = table_of(
        {
            "calls": groups.size(),
            "total_ns": groups["duration_ns"].sum(),
            "least_slack_ns": groups["slack_ns"].min(),
            "median_slack_ns": groups["slack_ns"].median().round().astype("int64"),
            "urgent_calls": groups["is_urgent"].sum(),
            "urgent_ns": groups["urgent_ns"].sum(),
        }
    ).reset_index()
    found = typed(found, {"kind": "str", "name": "str"}).sort_values(["kind", "name"])
    order = ["least_slack_ns", "total_ns"]
    return Slack(found.sort_values(order, ascending=[True, False], kind="stable", ignore_index=True))


def _of_all(job: Job, slacks: Mapping[int, np.ndarray]) -> pd.DataFrame:
    """Kind, name, duration and slack of all ranks' operations inside the window.

    Names stay numbers until they are grouped: a text for each operation would cost more than all else.
    """
    inside = {rank: np.flatnonzero(slacks[rank] != NONE) for rank in job.nodes}
    pieces = [(nodes.piece.ops, inside[rank]) for rank, nodes in job.nodes.items()]
    texts = {
        name: union_categoricals([column_of(ops, name)[rows] for ops, rows in pieces]) for name in ("kind", "name")
    }
    return table_of(
        texts
        | {
            "duration_ns": np.concatenate([array_of(ops, "duration_ns")[rows] for ops, rows in pieces]),
            "slack_ns": np.concatenate([slacks[rank][rows] for rank, rows in inside.items()]),
        }
    )
