"""Nsight Systems reports as captured (`.nsys-rep`, `.qdrep`): exported with the user's own `nsys` first."""

import hashlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers.base import Header, RankHint

SUFFIXES = (".nsys-rep", ".qdrep")


def recognises(path: Path) -> bool:
    """Whether the file's name ends as a report's does."""
    return path.suffix in SUFFIXES and path.is_file()


def peek(path: Path) -> Header:
    """The head of the report's export; see `Reader.peek`.

    Raises:
        NotATraceError: an export lies beside the report (that one is read), or `nsys` is missing or fails.
    """
    from traceanalyzer.readers.nsys import traces
    from traceanalyzer.readers.nsys.source import SqliteSource

    beside = _export_beside(path)
    if beside is not None:
        raise NotATraceError(f"{path}: its export {beside.name} lies beside it and is read instead")
    return traces.peek(SqliteSource(exported(path)), path)


def ended_ns(path: Path) -> int | None:
    """When the capture ended; see `Reader.ended_ns`."""
    from traceanalyzer.readers.nsys import traces
    from traceanalyzer.readers.nsys.source import SqliteSource

    return traces.ended_ns(SqliteSource(exported(path)))


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """Each rank of the report's export; see `Reader.read`.

    Raises:
        NotATraceError: `nsys` is missing or fails.
    """
    from traceanalyzer.readers.nsys import traces
    from traceanalyzer.readers.nsys.source import SqliteSource

    return traces.read(SqliteSource(exported(path)), path, hint, rules)


def exported(path: Path, cache: Path | None = None) -> Path:
    """The report's export in the cache folder, made there when it is not; only what is read is kept of it.

    Raises:
        NotATraceError: `nsys` is missing or fails; the message has the command to run by hand.
    """
    folder = cache or Path.home() / ".cache" / "traceanalyzer" / "nsys"
    target = folder / f"{path.stem}-{_fingerprint(path)}.sqlite"
    if target.exists():
        return target
    by_hand = shlex.join(_command("nsys", path, path.with_suffix(".sqlite")))
    nsys = shutil.which("nsys")
    if nsys is None:
        raise NotATraceError(f"{path}: a report as captured, and nsys is not on the PATH; export it with: {by_hand}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        made = Path(unfinished) / target.name
        # What nsys prints may name files and users: it goes nowhere.
        done = subprocess.run(_command(nsys, path, made), capture_output=True, check=False)  # noqa: S603
        if done.returncode or not made.exists():
            raise NotATraceError(f"{path}: nsys could not export it (exit code {done.returncode}); try: {by_hand}")
        from traceanalyzer.readers.nsys.traces import scrub

        scrub(made)
        made.rename(target)
    return target


def _command(nsys: str, path: Path, target: Path) -> list[str]:
    return [nsys, "export", "--type=sqlite", "--include-blobs=true", f"--output={target}", str(path)]


def _export_beside(path: Path) -> Path | None:
    candidates = (path.with_suffix(".sqlite"), path.with_name(f"{path.stem}_pqtdir"))
    return next((candidate for candidate in candidates if candidate.exists()), None)


def _fingerprint(path: Path) -> str:
    status = path.stat()
    text = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
