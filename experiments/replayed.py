"""Recorded jobs replayed, and the table that is made of them."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.discovery import discover
from traceanalyzer.loading import LoadOptions
from traceanalyzer.scale import summarise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def replay_of(folder: Path) -> Replay:
    """The recorded job's replay."""
    found = discover(folder)
    replay = summarise(found, found.runs[-1], LoadOptions(), names=("replay",)).results["replay"]
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
