"""How long each stage of a pipeline waits: the bubble as measured."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses import pipeline_shape
from traceanalyzer.analyses.base import Result, percent
from traceanalyzer.analyses.breakdown import Breakdown
from traceanalyzer.analyses.call_phases import CallPhases
from traceanalyzer.analyses.calls import Calls
from traceanalyzer.analyses.steps import Steps


class Pipeline(Result):
    """One row for each rank that is a stage of a pipeline; none without send and receive calls that name peers."""

    title: ClassVar[str] = "Pipeline stages"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    columns: ClassVar[Mapping[str, str]] = {
        "rank": "Global rank.",
        "pipeline": "Ranks that send to each other, directly or not, form one pipeline.",
        "stage": "Position in it: the first stage sends before it receives; else order of rank.",
        "basis": "What the row is of: complete steps that all ranks share, or the whole capture.",
        "steps": "Number of those steps; absent for a whole capture.",
        "window_ns": "Length of that window.",
        "compute_ns": "Time in which at least one compute kernel runs.",
        "idle_ns": "Time in which nothing runs on the GPU.",
        "p2p_calls": "Send and receive kernels of the window's steps.",
        "p2p_ns": "Sum of their durations, waiting included.",
        "p2p_exposed_ns": "Exposed communication that belongs to them.",
        "p2p_wait_ns": "Exposed part of their waits for a peer; absent where calls could not be matched.",
        "bubble_ns": "Idle + wait of point-to-point calls.",
        "bubble_pct": "100 · bubble / window.",
        "microbatches": "Sends from the first stage to its successor in a step; absent where that is no whole number.",
        "expected_bubble_pct": "Expected, not measured: 100 · (S−1)/(M+S−1) of GPipe and 1F1B for S stages, M "
        "microbatches.",
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        bubble = (table["idle_ns"] + table["p2p_wait_ns"]).astype("Int64")
        stages = table.groupby("pipeline")["stage"].transform("max") + 1
        # (S−1)/(M+S−1)
        expected = percent(stages - 1, table["microbatches"] + stages - 1)
        return table.assign(
            bubble_ns=bubble, bubble_pct=percent(bubble, table["window_ns"]), expected_bubble_pct=expected
        )


def across(
    parts: Mapping[int, pd.DataFrame],  # noqa: ARG001
    calls: Calls,
    call_phases: CallPhases,
    steps: Steps,
    breakdown: Breakdown,
) -> Pipeline:
    """Order the stages, and measure each over the complete steps that all ranks share (else the whole capture)."""
    return measured(calls, call_phases, steps, breakdown, None)


def measured(
    calls: Calls, call_phases: CallPhases, steps: Steps, breakdown: Breakdown, waits: pd.DataFrame | None
) -> Pipeline:
    """The stages with their waits: `waits` has `rank`, `call`, `wait_ns`; without it waits are absent."""
    moves = pipeline_shape.transfers(calls.table)
    table = pipeline_shape.stages(moves, sorted(breakdown.table["rank"]))
    if table.empty:
        return Pipeline(_EMPTY)
    shared = shared_steps(steps.table, set(table["rank"]))
    windows = _windows(steps.table, breakdown.table, shared)
    table = table.merge(windows, on="rank").merge(_p2p(calls, call_phases, waits, shared), on="rank", how="left")
    table["microbatches"] = table["pipeline"].map(_microbatches(moves, table, shared)).astype("Int64")
    return Pipeline(table.sort_values(["pipeline", "stage"], ignore_index=True))


_EMPTY = pd.DataFrame({name: pd.Series(dtype="Int64") for name in Pipeline.columns})


def shared_steps(steps: pd.DataFrame, ranks: set[int]) -> list[int]:
    """Numbers of the steps that are complete on all these ranks."""
    if steps.empty:
        return []
    complete = steps[steps["is_complete"].fillna(value=False).astype(bool) & steps["rank"].isin(ranks)]
    holders = complete.groupby("step")["rank"].nunique()
    return sorted(int(step) for step in holders.index[holders == len(ranks)])


def _windows(steps: pd.DataFrame, breakdown: pd.DataFrame, shared: list[int]) -> pd.DataFrame:
    figures = ["window_ns", "compute_ns", "idle_ns"]
    if not shared:
        return breakdown[["rank", *figures]].assign(basis="whole capture", steps=pd.NA).astype({"steps": "Int64"})
    chosen = steps[steps["step"].isin(shared)]
    table = chosen.groupby("rank")[figures].sum().astype("Int64").reset_index()
    return table.assign(basis="steps " + ", ".join(map(str, shared)), steps=len(shared)).astype({"steps": "Int64"})


def _p2p(calls: Calls, call_phases: CallPhases, waits: pd.DataFrame | None, shared: list[int]) -> pd.DataFrame:
    own = pipeline_shape.point_to_point(calls.table)
    own = own[own["step"].isin(shared)] if shared else own
    own = own[["rank", "call", "start_ns", "end_ns"]].merge(call_phases.table[["rank", "call", "exposed_ns"]])
    if waits is None:
        own["wait_ns"] = pd.array([pd.NA] * len(own), dtype="Int64")
    else:
        own = own.merge(waits[["rank", "call", "wait_ns"]], how="left")
    # A wait under compute is no bubble.
    is_hidden = (own["wait_ns"] > own["exposed_ns"]).fillna(value=False)
    own["wait_ns"] = own["wait_ns"].astype("Int64").mask(is_hidden, own["exposed_ns"])
    own["p2p_ns"] = own["end_ns"] - own["start_ns"]
    by_rank = own.groupby("rank")
    known = by_rank["wait_ns"].count() == by_rank.size()
    return pd.DataFrame(
        {
            "p2p_calls": by_rank.size(),
            "p2p_ns": by_rank["p2p_ns"].sum(),
            "p2p_exposed_ns": by_rank["exposed_ns"].sum(),
            "p2p_wait_ns": by_rank["wait_ns"].sum(min_count=1).where(known).astype("Int64"),
        }
    ).reset_index()


def _microbatches(moves: pd.DataFrame, table: pd.DataFrame, shared: list[int]) -> dict[int, int | None]:
    """By pipeline: sends from the first stage to the second in a step, when every step has as many."""
    answer: dict[int, int | None] = {}
    for pipeline, members in table.groupby("pipeline"):
        ranks = members.sort_values("stage")["rank"].tolist()
        sends = moves[(moves["rank"] == ranks[0]) & (moves["peer"] == ranks[min(1, len(ranks) - 1)]) & moves["is_send"]]
        counts = sends[sends["step"].isin(shared)].groupby("step").size()
        is_known = len(counts) == len(shared) and counts.min() == counts.max()
        answer[int(pipeline)] = int(counts.iloc[0]) if is_known else None
    return answer
