"""The command line, as a user types it in the folder of the test."""

import json
import shlex
from pathlib import Path

from tests.builders import document, kernel, write
from traceanalyzer.cli import run


def typed(line, *more):
    """The exit code of a line, and of words that follow it."""
    return run([*shlex.split(line), *more])


def job(place, *ops, ranks=1):
    """A folder with a file for each rank, of one kernel or of these operations."""
    for rank in range(ranks):
        write(Path(place, f"rank{rank}.json"), document([*(ops or [kernel(0, 5)])], rank=rank, world_size=ranks))
    return place


def summary(folder):
    """What `summary.json` holds."""
    return json.loads(Path(folder, "summary.json").read_text())
