"""Pipeline bubble: stages stand still because of the schedule.

Stages are idle at the start and end of each step: *(stages − 1) ÷ (microbatches + stages − 1)* of a step for GPipe
and 1F1B.

**Fix.** More microbatches per step, or a schedule with a smaller bubble: `ScheduleInterleaved1F1B`,
`ScheduleInterleavedZeroBubble`, `ScheduleZBVZeroBubble`. `analyze-traces what-if profile/pp --schedule interleaved:2`
plays another schedule with the recorded passes.

CPU-bound idle is taken out first: a stage that waits for launches is not in a bubble.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from traceanalyzer.analyses.pipelines.pipeline import (
    GPIPE,
    INTERLEAVED,
    LOOPED,
    ONE_F_ONE_B,
    Pipeline,
    Pipelines,
    PipelineSchedule,
)
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.schedule import rescheduled
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.findings.savings import Saves, saves_of_schedule

PLACE = "Uneven ranks", 4

_INTERLEAVED = "ScheduleInterleavedZeroBubble of torch.distributed.pipelining, or "
_PLAIN = f"ScheduleInterleaved1F1B, {_INTERLEAVED}"
_OTHERS = {GPIPE: _PLAIN, ONE_F_ONE_B: _PLAIN, INTERLEAVED: _INTERLEAVED, LOOPED: _INTERLEAVED}
"""Schedules with a smaller bubble, by the one that is used."""


def pipeline_bubble(
    run: Run,
    pipelines: Pipelines,
    pipeline: Pipeline,
    pipeline_schedule: PipelineSchedule,  # noqa: ARG001 - played
) -> Iterator[Finding]:
    """Stages of a pipeline are idle or wait for each other's messages.

    The change is the recorded passes played in a schedule with a smaller bubble: CPU-bound idle stays, as do uneven
    stages. Of several pipelines the one that waits most is reported; without a known schedule it is a fact.
    """
    rows = [row for row in pipelines.rows() if run.is_worth((row["bubble_pct"] or 0) / 100 * run.step_ns)]
    if not rows:
        return
    row = max(rows, key=lambda row: row["bubble_pct"])
    stages = pipeline.table[pipeline.table["pipeline"] == row["pipeline"]]
    expected, count = row["expected_bubble_pct"], row["microbatches"]
    change, saves = _played(run, row, len(stages))
    if expected is None:
        why, fix = f"The schedule is unknown ({row['why_unknown'] or row['schedule']}).", ""
    else:
        alone = (
            f"With {count} microbatches on {row['stages']} stages {row['schedule']} alone leaves {expected:.0f}% unused"
        )
        is_more = row["bubble_pct"] > expected
        why = f"{alone}{'; the rest is uneven stages, messages or launch gaps' if is_more else ''}."
        fix = f"{_OTHERS.get(row['schedule'], '')}{2 * count} microbatches per step instead of {count}."
    yield Finding(
        headline=f"Pipeline bubble: stages wait or are idle {row['bubble_pct']:.0f}% of a step on average.",
        why=why,
        fix=fix,
        changes=() if change is None else (change,),
        saves=saves,
        half_of="the bubble",
        evidence=tuple(stages[["rank", "stage", "idle_ns", "p2p_wait_ns"]].astype("object").to_dict("records")),
        table="pipeline",
    )  # fmt: skip


def _played(run: Run, row: Mapping[str, Any], ranks: int) -> tuple[Change | None, Saves | None]:
    """A schedule with a smaller bubble, and what it saves; nothing where the trace does not tell the passes."""
    is_plain = row["schedule"] in (GPIPE, ONE_F_ONE_B)
    if run.engine is None or not (is_plain or row["schedule"] == INTERLEAVED) or not row["microbatches"]:
        return None, None
    change = Change("schedule", "interleaved:2" if is_plain and not row["microbatches"] % ranks else "zero-bubble")
    try:
        found = rescheduled(run.engine, run.results, str(change.to), ())
    except (InputError, UsageError):
        return None, None
    return change, saves_of_schedule(found, run.engine)
