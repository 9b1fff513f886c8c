"""`--debug`: what a maintainer needs of a run, and nothing that says what was run: no name, path or content."""

import json
import platform
import re
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceanalyzer import __version__
from traceanalyzer.free_memory import FEWER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from traceanalyzer.analyses import Results
    from traceanalyzer.failures import Failure

_PACKAGES = (
    "adbc-driver-sqlite", "click", "isal", "jinja2", "msgspec", "numpy", "pandas", "plotly", "protobuf", "pyarrow",
    "rich",
)  # fmt: skip

_PLACE = re.compile(r'File "[^"\n]*/traceanalyzer/([\w/]+\.py)", line (\d+)')

MARK = b'"traceanalyzer": "'
"""What each such file has near its beginning."""

_COUNTS = ("world_size", "is_truncated", "events_skipped", "events_dropped")


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


def write(path: Path, clock: Clock, failures: "Sequence[Failure]", results: "Results") -> None:
    """Write the file.

    Raises:
        UsageError: it cannot be written.
    """
    content = {
        **_surroundings(),
        "seconds": clock.seconds,
        "fewer_processes": FEWER,
        "rows": {name: len(result) for name, result in results.items()},
        "ranks": _ranks(results["ranks"].rows()),
        "checks": [{key: row[key] for key in ("check", "severity", "count")} for row in results["integrity"].rows()],
        "failures": [
            {"part": one.name, "error": one.why.partition(":")[0], "at": _places(one.traceback)} for one in failures
        ],
    }
    _write(path, content)


def write_crash(path: Path, error: BaseException) -> None:
    """Write what is known of a bug that ended the run: of the error its kind and the places in this program's code.

    Raises:
        UsageError: it cannot be written.
    """
    told = "".join(traceback.format_exception(error))
    crash = {"error": type(error).__name__, "at": _places(told)}
    _write(path, {**_surroundings(), "crash": crash})


def _surroundings() -> dict[str, Any]:
    return {
        "traceanalyzer": __version__,
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    from traceanalyzer.files.whole import whole_file

    with whole_file(path) as draft:
        draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _ranks(rows: "Sequence[Mapping[str, Any]]") -> list[dict[str, Any]]:
    return [{"format": row.get("format"), **{name: row.get(name) for name in _COUNTS}} for row in rows]


def _places(text: str) -> list[str]:
    """Places of our code in a traceback, as `analyses/work.py:12`: its other lines may hold names."""
    return [f"{file}:{line}" for file, line in _PLACE.findall(text)]
