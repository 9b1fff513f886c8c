"""By how much operations could end later, and how much slower the job is than an ideal one."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from traceanalyzer.analyses.base import Result, ratio, typed
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.changes import EVEN, Change, Changeable
from traceanalyzer.analyses.replay.job import Job
from traceanalyzer.analyses.replay.replay import MOST_RANKS, Replay
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, table_of, without_rows

# By how much each operation could end later without making the job longer.


class Slack(Result):
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


def slack_across(_parts: Mapping[int, pd.DataFrame], replay: Replay) -> Slack:
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


# How much slower the job is than an ideal one in which ranks that do the same need the same, and whose part that is.
#
# The decomposition of Lin et al., Understanding Stragglers in Large Model Training Using What-if Analysis (OSDI 2025).


TYPES: tuple[Changeable, ...] = ("compute", "copy", "host", "comm")


class Slowdown(Result):
    """One row for the job, each type of operation, rank and stage, in the mean step; job and ranks in each step too."""

    title: ClassVar[str] = "Slowdown against the ideal job"
    keys: ClassVar[tuple[str, ...]] = ("of", "type", "rank", "stage", "step")
    columns: ClassVar[Mapping[str, Column]] = {
        "of": Column.text(
            "`job`: all as recorded; `type`, `rank`, `stage`: only this is as recorded, all else is ideal."
        ),
        "type": Column.text(
            "Type of operation: compute, copy, host (its work) or comm (transfers); absent for others."
        ),
        "rank": Column.ident("Global rank; absent for others."),
        "stage": Column.ident("Stage of the pipeline; absent for others."),
        "step": Column.ident("Step; absent for the mean of the complete steps, or the whole capture."),
        "step_ns": Column.time("The step, replayed so.", adds=Adds.DERIVED),
        "ideal_ns": Column.time(
            "The step when compute, copies and host work take their mean over the ranks that do the same, and "
            "transfers the median of those of the same collective and size; the recorded one where that is no longer.",
            adds=Adds.DERIVED,
        ),
        "slowdown_ratio": Column.number(
            "Step / ideal: what the job would lose if nothing else were uneven. Of the job and the mean step at "
            "least 1; of one step, rank, type or stage it may be less, if that needs less than the ideal."
        ),
        "error_ns": Column.time(
            "By how much the replay without a change misses the recording; of the mean step.", adds=Adds.DERIVED
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"slowdown_ratio": ratio(table["step_ns"], table["ideal_ns"])})


_STORED = ("of", "type", "rank", "stage", "step", "step_ns", "ideal_ns", "error_ns")


def slowdown_across(_parts: Mapping[int, pd.DataFrame], replay: Replay, pipeline: Pipeline) -> Slowdown:
    """Replay the ideal job, and with one part of it as recorded after the other."""
    engine = replay.engine
    if engine is None or len(engine.job.nodes) < 2:
        return Slowdown(without_rows(_STORED))
    cases = _cases(list(engine.job.nodes), pipeline)
    steps = _ideal_or_recorded(
        engine.steps_after([ideal_but(), *(changes for _, changes in cases)], with_contention=False)
    )
    error_ns = engine.error_ns
    numbers: Sequence[object] = sorted(engine.windows.table["step"].dropna().unique()) or [pd.NA]
    rows = []
    for column, (case, _) in enumerate(cases, 1):
        means = (round(float(steps[:, place].mean())) for place in (column, 0))
        rows.append(case | dict(zip(("step_ns", "ideal_ns"), means, strict=True)) | {"error_ns": error_ns})
        if case["of"] in ("job", "rank") and engine.windows.has_steps:
            rows += [
                case | {"step": number, "step_ns": int(after), "ideal_ns": int(ideal)}
                for number, after, ideal in zip(numbers, steps[:, column], steps[:, 0], strict=True)
            ]
    table = pd.DataFrame(rows, columns=list(_STORED))
    return Slowdown(typed(table, dict.fromkeys(("rank", "stage", "step", "error_ns"), "Int64")))


def _ideal_or_recorded(steps: np.ndarray) -> np.ndarray:
    """The steps (rows) of the even job, the recorded one and the others (columns); all as recorded if that is shorter.

    Who needs less than the mean is longer in the even job. Where the job waits for him all the same, as for a rank
    that began last, evening out lengthens the job: no part of it costs anything for being uneven.
    """
    even, recorded = steps[:, 0], steps[:, 1]
    return steps if even.mean() < recorded.mean() else np.repeat(recorded[:, None], steps.shape[1], axis=1)


Case = tuple[dict[str, object], tuple[Change, ...]]


def _cases(ranks: list[int], pipeline: Pipeline) -> list[Case]:
    """What is as recorded, and the changes that make all else ideal."""
    cases: list[Case] = [({"of": "job"}, ())]
    cases += [({"of": "type", "type": kind}, ideal_but(kind=kind)) for kind in TYPES]
    if len(ranks) <= MOST_RANKS:
        cases += [({"of": "rank", "rank": rank}, ideal_but(ranks, {rank})) for rank in ranks]
    stages = pipeline.table.groupby("stage")["rank"] if len(pipeline) else ()
    cases += [({"of": "stage", "stage": int(stage)}, ideal_but(ranks, set(own))) for stage, own in stages]
    return cases


def ideal_but(ranks: Sequence[int] = (), kept: set[int] | None = None, kind: str | None = None) -> tuple[Change, ...]:
    """Changes that make all ideal but a type of operation, or what some ranks do themselves."""
    others = None if kept is None else frozenset(ranks) - kept
    return tuple(Change(part, EVEN, None if part == "comm" else others) for part in TYPES if part != kind)
