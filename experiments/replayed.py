"""Recorded jobs replayed, and the table that is made of them."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.discovery import discover
from traceanalyzer.loading import LoadOptions
from traceanalyzer.scale import summarise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from traceanalyzer.analyses.base import Result


def results_of(folder: Path, names: Sequence[str]) -> Mapping[str, Result]:
    """These Results of the recorded job."""
    found = discover(folder)
    return summarise(found, found.runs[-1], LoadOptions(), names=names).results


def replay_of(folder: Path) -> Replay:
    """The recorded job's replay."""
    replay = results_of(folder, ("replay",))["replay"]
    assert isinstance(replay, Replay)
    return replay


def told(rows: Sequence[dict[str, Any]], target: Path) -> None:
    """Write the rows as CSV, and print them."""
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print("  ".join(str(value) for value in row.values()))
