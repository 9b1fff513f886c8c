"""`--debug`: what a maintainer needs to know of a run; no name, path or content of the traces."""

import json
import platform
import re
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceanalyzer import __version__
from traceanalyzer.execution import FEWER

if TYPE_CHECKING:
    from traceanalyzer.analyses import Results
    from traceanalyzer.errors import Failure

_PACKAGES = re.findall(r"\S+", "adbc-driver-sqlite click isal jinja2 msgspec numpy pandas plotly protobuf pyarrow rich")

_PLACE = re.compile(r'File "[^"\n]*/traceanalyzer/([\w/]+\.py)", line (\d+)')

MARK = b'"traceanalyzer": "'
"""What each such file has near its beginning."""

ASKED: ContextVar[Path | None] = ContextVar("asked", default=None)
"""The file that the command that runs is asked for, once it may be written."""

_COUNTS = ("format", "world_size", "is_truncated", "events_skipped", "events_dropped")


class Clock:
    """Seconds that the parts of a run take."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def mark(self, part: str) -> None:
        """A part ends."""
        now = time.monotonic()
        self.seconds[part] = round(now - self._since, 3)
        self._since = now


def measured(clock: Clock, failures: "Sequence[Failure]", results: "Results") -> dict[str, Any]:
    """Facts about a run that wrote its report."""
    return {
        "seconds": clock.seconds,
        "fewer_processes": FEWER,
        "rows": {name: len(result) for name, result in results.items()},
        "ranks": [{name: row.get(name) for name in _COUNTS} for row in results["ranks"].rows()],
        "checks": [{key: row[key] for key in ("check", "severity", "count")} for row in results["integrity"].rows()],
        "failures": [
            {"part": one.name, "error": one.why.partition(":")[0], "at": _places(one.traceback)} for one in failures
        ],
    }


def crash(error: BaseException) -> dict[str, Any]:
    """Kind of the error that ended a run, and the places in this program's code."""
    text = "".join(traceback.format_exception(error))
    return {"crash": {"error": type(error).__name__, "at": _places(text)}}


def write(path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts, with the versions in use.

    Raises:
        UsageError: the file cannot be written.
    """
    from traceanalyzer.files.whole import whole_file

    content = {
        "traceanalyzer": __version__,
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in _PACKAGES},
        **facts,
    }
    with whole_file(path) as draft:
        draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _places(text: str) -> list[str]:
    """Places of our code in a traceback, as `analyses/work.py:12`: other lines may hold names."""
    return [f"{file}:{line}" for file, line in _PLACE.findall(text)]
