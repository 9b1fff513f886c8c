"""A report into its folder: the formats asked for, without what an earlier report left there."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from traceanalyzer.analyses import ANALYSES
from traceanalyzer.errors import UsageError
from traceanalyzer.report import WRITERS, Report, Writer, write_html
from traceanalyzer.schema import TABLES

_GATES = ("gate.xml", "gate.md")

_RANK_FILE = re.compile(r"rank_\d+\.parquet")


def prepare(folder: Path) -> None:
    """Make the folder, before the work that will fill it.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def write(report: Report, folder: Path, formats: Sequence[str], *, plotlyjs: str = "inline") -> list[Path]:
    """Write the report in each format; tables of an earlier one go first, since its ranks may be others.

    Raises:
        UsageError: something cannot be written.
    """
    writers: dict[str, Writer] = {**WRITERS, "html": partial(write_html, plotlyjs=plotlyjs)}
    try:
        for old in _left_over(folder):
            old.unlink()
        return [path for name in formats for path in writers[name](report, folder)]
    except OSError as error:
        raise _unwritable(folder, error) from error


def _left_over(folder: Path) -> Iterator[Path]:
    """Files by the names that reports give, nothing else."""
    yield from (path for name in _GATES if (path := folder / name).is_file())
    for name in ANALYSES:
        for suffix in ("csv", "parquet"):
            path = folder / "tables" / f"{name}.{suffix}"
            if path.is_file():
                yield path
    for name in TABLES:
        yield from (path for path in (folder / "events" / name).glob("*") if _RANK_FILE.fullmatch(path.name))


def _unwritable(folder: Path, error: OSError) -> UsageError:
    place = error.filename or folder
    return UsageError(f"{place}: cannot be written ({error.strerror}); choose another --output")
