"""How many processes suit some files: those that save more time than their start takes."""

import os
from collections.abc import Sequence
from pathlib import Path

SECONDS_A_FILE = 0.5
"""What every analysis takes for one rank, however short."""

SECONDS_A_MB = 0.45
"""What a compressed file, a database or Parquet takes on top, and `SECONDS_A_PLAIN_MB` a file of plain text."""

SECONDS_A_PLAIN_MB = 0.04

START_SECONDS = 1.5
"""What it takes to start processes; those that save less are not started."""


def processes_for(files: Sequence[Path], jobs: int | None) -> int:
    """As many processes as asked for; else those that save more than their start takes, one for each core at most."""
    if jobs is not None:
        return max(1, min(jobs, len(files)))
    processes = max(1, min(len(files), _cores()))
    saved_s = sum(_work_s(file) for file in files) * (1 - 1 / processes)
    return processes if saved_s > START_SECONDS else 1


def _work_s(path: Path) -> float:
    """About how long one file takes: enough to tell a moment from many."""
    files = path.iterdir() if path.is_dir() else (path,)
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    return SECONDS_A_FILE + size_mb * (SECONDS_A_PLAIN_MB if path.suffix == ".json" else SECONDS_A_MB)


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
