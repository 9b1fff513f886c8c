"""Recorded jobs replayed, and the table that is made of them."""

from __future__ import annotations

import csv
import json
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.discovery import discover
from traceanalyzer.loading import LoadOptions
from traceanalyzer.scale import summarise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from traceanalyzer.analyses.base import Result
    from traceanalyzer.findings.what_if import Answer


def results_of(folder: Path, names: Sequence[str]) -> Mapping[str, Result]:
    """These Results of the recorded job."""
    found = discover(folder)
    return summarise(found, found.runs[-1], LoadOptions(), names=names).results


def replay_of(folder: Path) -> Replay:
    """The recorded job's replay."""
    replay = results_of(folder, ("replay",))["replay"]
    assert isinstance(replay, Replay)
    return replay


def unprofiled_ms(folder: Path) -> float | None:
    """The recorded job's step without a profiler, where it was timed.

    `plainN.json` beside the traces tells `step_ms` of rank N, of which the slowest counts; else it is the mean of the
    turns that the job took with its pair.
    """
    plain = [json.loads(path.read_text(encoding="utf-8"))["step_ms"] for path in folder.glob("plain*.json")]
    if plain:
        return float(max(plain))
    turns = turns_ms(folder)
    return mean(turns) if turns else None


def turns_ms(folder: Path) -> list[float]:
    """Mean step without a profiler of each turn that the job took, by `steps.json` beside its folder.

    A job of one turn only has the times of its steps there, of which this is the median.
    """
    pair = folder.parent / "steps.json"
    if not pair.is_file():
        return []
    times = json.loads(pair.read_text(encoding="utf-8"))[folder.name]
    return [mean(turn) / 1e6 for turn in times] if isinstance(times[0], list) else [median(times) / 1e6]


def is_inside(row: Mapping[str, Any]) -> bool | None:
    """Whether what happened without a profiler lies in the row's range; `None` where it was not timed."""
    happened = row["unprofiled_happened_ms"]
    if happened == "" or row["unprofiled_least_ms"] == "":
        return None
    return bool(row["unprofiled_least_ms"] <= happened <= row["unprofiled_most_ms"])


def of_unprofiled(answer: Answer, happened_ms: float | None) -> dict[str, Any]:
    """The forecast without the profiler with its range, and what happened."""
    saves = answer.saves
    ends = (saves.before_ns - saved_ns for saved_ns in (saves.likely_ns, saves.high_ns, saves.low_ns))
    forecast, least, most = (ns / 1e6 for ns in ends) if saves.is_unprofiled else 3 * (None,)
    miss = 100 * (forecast / happened_ms - 1) if forecast and happened_ms else None
    numbers = {"unprofiled_forecast_ms": forecast, "unprofiled_least_ms": least, "unprofiled_most_ms": most,
               "unprofiled_happened_ms": happened_ms}  # fmt: skip
    row: dict[str, Any] = {name: "" if value is None else round(value, 2) for name, value in numbers.items()}
    row["unprofiled_miss_pct"] = "" if miss is None else round(miss, 1)
    return row | {"holds": {True: "yes", False: "no", None: ""}[is_inside(row)]}


def write_rows(rows: Sequence[dict[str, Any]], target: Path) -> None:
    """Write the rows as CSV, and print them."""
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")
    judged = [row["holds"] for row in rows if row.get("holds")]
    print(f"{judged.count('yes')} of {len(judged)} steps without a profiler lie in the forecast's range")
