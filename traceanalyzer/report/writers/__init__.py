"""A report as files: each form in which it can be written, in a folder that is filled whole or not at all."""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from traceanalyzer.errors import Failure, UsageError
from traceanalyzer.execution import aside, signals_wait
from traceanalyzer.files.whole import whole_files
from traceanalyzer.report.contents import Report

Writer = Callable[..., list[Path]]
"""Writes a report into a folder and returns the files it made."""


def write_text(path: Path, text: str) -> Path:
    """Write a file, in which bytes of names that are no text are replaced; returns it."""
    path.write_text(text, encoding="utf-8", errors="replace")
    return path


def _write_by(place: str, report: Report, folder: Path, **options: Any) -> list[Path]:
    """Write a report by a function of a module, which is loaded when it is first needed."""
    module, function = place.split(".")
    made: list[Path] = getattr(import_module(f"{__name__}.{module}"), function)(report, folder, **options)
    return made


WRITERS: Mapping[str, Writer] = MappingProxyType(
    {
        name: partial(_write_by, place)
        for name, place in {
            "html": "html.write",
            "csv": "tables.write_csv",
            "json": "tables.write_json",
            "parquet": "tables.write_parquet",
            "md": "text.write",
            "xlsx": "tables.write_workbook",
        }.items()
    }
)
"""By the name that `--format` takes."""


# A report in the formats asked for.


def write(
    report: Report,
    folder: Path,
    formats: Sequence[str],
    *,
    failures: list[Failure] | None = None,
    processes: int = 1,
) -> list[Path]:
    """Write the report into the folder in each format; returns the files.

    `failures` takes up parts that fail. With a second process a fork writes the other formats while the page is drawn.
    """
    wanted = dict.fromkeys(formats)
    rest = [name for name in wanted if name != "html"]
    others = aside(partial(_written, report, folder, rest), processes=processes if rest else 1)
    try:
        page = WRITERS["html"](report, folder, failures=failures) if "html" in wanted else []
    finally:
        files = others()
    files["html"] = page
    return [path for name in wanted for path in files[name]]


def _written(report: Report, folder: Path, names: Sequence[str]) -> dict[str, list[Path]]:
    return {name: WRITERS[name](report, folder) for name in names}


# A report's folder: filled whole or not at all, and never with files of two reports.


RECORD = ".traceanalyzer.json"
"""In every folder that was filled: what the report is of, and which files are its."""

_GATES = "gate."


@dataclass(frozen=True, slots=True)
class Draft:
    """Where a report is written before it takes its place.

    Attributes:
        path: folder to write into.
        target: folder in which the files will lie.
        replaced: what another report was of that lay there; `None` when there was none, or it was of the same source.
    """

    path: Path
    target: Path
    replaced: str | None

    @property
    def notes(self) -> tuple[str, ...]:
        """Says whose report gave way to this one."""
        if self.replaced is None:
            return ()
        return (f"{self.target} held the report of {self.replaced}, which this one replaces; --output keeps both.",)

    def final(self, paths: Iterable[Path]) -> list[Path]:
        """Where files of the draft will lie."""
        return [self.target / path.relative_to(self.path) for path in paths]


@contextmanager
def whole(target: Path, source: str, content: str, *, force: bool = False) -> Iterator[Draft]:
    """A draft that becomes the folder's content when the block ends well, and leaves it as it was when not.

    Files of an earlier report go first. Only one of the same content keeps those that are not written again: so
    formats can be made one after the other. Files that no report wrote are never touched: with one that has the name
    of a file of this report nothing is written, unless `force` is set.

    Args:
        target: the folder; it is made.
        source: what the report is of, for people.
        content: `fingerprint` of all that its figures come from.
        force: replace files of others too.

    Raises:
        UsageError: it cannot be written, or would replace what no report wrote.
    """
    with whole_files(target) as draft:
        was_of = _record(target).get("source")
        yield Draft(draft, target, str(was_of) if was_of not in (None, source) else None)
        with _alone(target):
            _settle(draft, target, {"source": source, "content": content}, force=force)


def fingerprint(*parts: Any, files: Iterable[Path] = ()) -> str:
    """Equal for equal parts (by `repr`) and untouched files."""
    states = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(files)]
    return hashlib.sha256(repr((parts, states)).encode(errors="surrogateescape")).hexdigest()


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """No other process settles into the folder meanwhile, where its file system can lock, and no signal comes between.

    Files are written by then: what is left is to rename them.
    """
    place = None
    with suppress(ImportError, OSError):
        import fcntl  # Windows has none

        place = os.open(target, os.O_RDONLY)
        fcntl.flock(place, fcntl.LOCK_EX)
    try:
        with signals_wait():
            yield
    finally:
        if place is not None:
            os.close(place)


def _settle(draft: Path, target: Path, record: dict[str, Any], *, force: bool) -> None:
    """Put the draft's files in place of the earlier report's, the page last."""
    earlier = _record(target)
    new = sorted(path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file())
    old = [name for name in earlier.get("files", ()) if _is_below(name)]
    is_same = earlier.get("content") == record["content"]
    kept = [name for name in old if is_same and name not in new and not name.startswith(_GATES)]
    text = json.dumps(record | {"files": sorted({*new, *kept})}, indent=1, ensure_ascii=True)
    (draft / RECORD).write_text(text, encoding="utf-8")
    if not force:
        _refuse_others(target, new, set(old))
    for name in set(old) - set(new) - set(kept):
        _remove(target, name)
    for name in sorted(new, key=lambda name: name.endswith(".html")):
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        (draft / name).replace(place)
    (draft / RECORD).replace(target / RECORD)


def _refuse_others(target: Path, new: Iterable[str], ours: Collection[str]) -> None:
    """Raise `UsageError` for a file of this report's whose place something of another's takes, or leads elsewhere."""
    for name in new:
        place = target / name
        if name not in ours and (place.exists() or place.is_symlink()):
            raise UsageError(f"{place} is there already and no report's: name another --output, or replace it: --force")
        if any((target / part).is_symlink() for part in PurePosixPath(name).parents if part.parts):
            raise UsageError(f"{place.parent} is a link to elsewhere: name another --output, or follow it: --force")


def _record(target: Path) -> dict[str, Any]:
    """What an earlier report says of itself; nothing where there is none that can be read."""
    try:
        content = json.loads((target / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    files = content.get("files") if isinstance(content, dict) else None
    is_ours = isinstance(files, list) and all(isinstance(name, str) for name in files)
    return content if is_ours else {}


def _is_below(name: str) -> bool:
    """Whether a recorded name stays inside its folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _remove(target: Path, name: str) -> None:
    """A file, and the folders that it leaves empty."""
    path = target / name
    path.unlink(missing_ok=True)
    for folder in path.parents:
        if folder == target:
            return
        with suppress(OSError):
            folder.rmdir()
