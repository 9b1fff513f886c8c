"""The machine that a trace was recorded on: from its metadata, else from the name that the profiler gave the file."""

import re
from pathlib import Path

import pandas as pd

from traceanalyzer.model.schema import printable

# As tensorboard_trace_handler names files: host and process, then nanoseconds.
_OF_HANDLER = re.compile(r"(?P<host>.+)_(?P<process>\d+)\.\d{10,}\.pt\.trace\.json(?:\.(?:gz|zst|xz|bz2))?")


def recorded_on(path: Path, named: str | None, operators: pd.DataFrame) -> tuple[str | None, int | None]:
    """Host and process.

    A file's name is believed only when one of the threads that recorded `operators` bears its process's number, as
    Linux numbers a process's main thread: other names end in a number too.
    """
    match = _OF_HANDLER.fullmatch(path.name)
    if match is None or operators.empty or not (operators["thread"] == int(match["process"])).any():
        return (printable(named) if named else None), None
    return printable(named or match["host"]), int(match["process"])
