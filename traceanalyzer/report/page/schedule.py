"""A pipeline's schedule as a picture: when each stage computes which microbatch, forward and backward."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.communication.common_clock import Clock
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import text
from traceanalyzer.report.words.parts import headline_steps

MOST_BLOCKS = 4_000
"""Of a picture; a pipeline with more is left to its table."""


@dataclass(frozen=True, slots=True)
class Block:
    """One stretch of compute; place and width in per cent of the picture."""

    place: float
    width: float
    phase: str
    microbatch: int
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    """One stage."""

    rank: int
    stage: int
    blocks: tuple[Block, ...]
    bubble_pct: float | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """One step of one pipeline.

    Attributes:
        step: its number.
        ranks: of the pipeline, in order of stage.
        others: pipelines that are not drawn.
        length_ns: from the first stage's first compute to the last compute of any stage.
        rows: by stage.
    """

    step: int
    ranks: tuple[int, ...]
    others: int
    length_ns: int
    rows: tuple[Row, ...]


def schedule(results: Results, clock: Clock | None) -> Schedule | None:
    """The last complete step of the pipeline that waits most; `None` where there is none, or too much to draw."""
    stages = results["pipeline"].to_frame() if "pipeline" in results else pd.DataFrame()
    stretches = results["pipeline_schedule"].to_frame()
    step = _step(stretches, headline_steps(results))
    if stages.empty or clock is None or step is None:
        return None
    bubbles = stages.assign(bubble=stages["bubble_ns"].astype("Float64").fillna(0)).groupby("pipeline")["bubble"].sum()
    own = stages[stages["pipeline"] == bubbles.idxmax()].sort_values("stage")
    held = stretches[(stretches["step"] == step) & stretches["rank"].isin(own["rank"])]
    if held.empty or len(held) > MOST_BLOCKS:
        return None
    shifts = held["rank"].map(clock.shift_ns)
    drawn = held.assign(start_ns=held["start_ns"] - shifts, end_ns=held["end_ns"] - shifts)
    first, length = int(drawn["start_ns"].min()), int(drawn["end_ns"].max() - drawn["start_ns"].min())
    rows = tuple(
        Row(int(rank), int(stage), _blocks(drawn[drawn["rank"] == rank], first, max(length, 1)),
            None if pd.isna(bubble) else float(bubble))
        for rank, stage, bubble in own[["rank", "stage", "bubble_pct"]].itertuples(index=False)
    )  # fmt: skip
    return Schedule(step, tuple(row.rank for row in rows), len(bubbles) - 1, length, rows)


def _step(stretches: pd.DataFrame, wanted: list[int]) -> int | None:
    """The last of the wanted steps that is there, else the last one."""
    known = stretches["step"].dropna().unique() if len(stretches) else []
    there = [step for step in wanted if step in known] or list(known)
    return int(max(there)) if there else None


def _blocks(own: pd.DataFrame, first_ns: int, length_ns: int) -> tuple[Block, ...]:
    columns = ["start_ns", "end_ns", "compute_ns", "phase", "microbatch", "virtual_stage"]
    return tuple(
        Block(
            100 * (start - first_ns) / length_ns,
            100 * (end - start) / length_ns,
            str(phase),
            int(microbatch),
            f"{phase} of microbatch {microbatch}{_in_stage(stage)}: {text(end - start, Unit.NS)}, "
            f"compute {text(compute, Unit.NS)}",
        )
        for start, end, compute, phase, microbatch, stage in own[columns].itertuples(index=False)
    )


def _in_stage(stage: int | None) -> str:
    return "" if pd.isna(stage) else f" in stage {stage}"
