"""Every step as a column of its parts: what the page's script draws, of the mean over ranks or of one of them."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.findings.late.lateness import said
from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.meaning.listed import listed
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.report.words.parts import split_steps, steps_over_ranks_of

MOST_CELLS = 4_000
"""Ranks × steps that are carried one by one; of more only the ranks on top of the timeline, beside the mean."""

_MOST_EPISODES = 4


def step_chart(results: Results, on_top: Sequence[int] = (), run_info: RunInfo | None = None) -> dict[str, Any] | None:
    """Steps, parts, times in ns, and who was late when; `None` with fewer than two steps.

    `mean` has each step's parts as means over the ranks, `least` and `most` are the shortest and longest rank's step.
    """
    table, parts = split_steps(results)
    steps = sorted(table["step"].dropna().unique().tolist()) if len(table) else []
    if len(steps) < 2:
        return None
    parts = tuple(part for part in parts if table[part.column].any())
    columns = [part.column for part in parts]
    over = steps_over_ranks_of(results).table.set_index("step").reindex(steps)
    every = sorted(table["rank"].unique().tolist())
    shown = every if len(every) * len(steps) <= MOST_CELLS else [rank for rank in on_top if rank in every]
    return {
        "steps": [int(step) for step in steps],
        "complete": [bool(known) for known in over["is_complete"]],
        "parts": [{"kind": part.kind, "label": part.label} for part in parts],
        "mean": over[columns].astype("float64").round().astype("int64").to_numpy().tolist(),
        "least": over["shortest_ns"].astype("int64").tolist(),
        "most": over["longest_ns"].astype("int64").tolist(),
        "ranks": _of_ranks(table[table["rank"].isin(shown)], columns, steps),
        "left_out": len(every) - len(shown),
        "bare_ns": _bare_ns(run_info),
        "late": _late(results.get("episodes")),
    }


def _of_ranks(table: pd.DataFrame, columns: Sequence[str], steps: Sequence[int]) -> dict[str, list[list[int] | None]]:
    """By rank its parts in each step; `None` in which it has no such step."""
    place = {step: number for number, step in enumerate(steps)}
    found: dict[str, list[list[int] | None]] = {}
    parts = table[list(columns)].to_numpy(dtype="int64").tolist()
    for rank, step, own in zip(table["rank"].tolist(), table["step"].tolist(), parts, strict=True):
        if step in place:
            found.setdefault(str(rank), [None] * len(steps))[place[step]] = own
    return found


def _bare_ns(run_info: RunInfo | None) -> float | None:
    """A step without the profiler, as the run recorded it."""
    if run_info is None or run_info.unprofiled is None:
        return None
    return run_info.unprofiled.mean


def _late(episodes: Episodes | None) -> list[dict[str, Any]]:
    """Ranks, cause and steps of the episodes that findings speak of, costliest first."""
    if episodes is None:
        return []
    rows = [row for row in said(episodes) if numbers(row["numbers"])]
    return [
        {"ranks": listed(numbers(row["ranks"])), "cause": str(row["cause"]), "steps": list(numbers(row["numbers"]))}
        for row in rows[:_MOST_EPISODES]
    ]
