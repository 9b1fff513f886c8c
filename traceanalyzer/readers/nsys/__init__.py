"""Nsight Systems: exported reports (`--type=sqlite`, `--type=parquetdir`), and `.nsys-rep` and `.qdrep` as captured.

A report as captured is exported first, with the user's own `nsys`.
"""

import hashlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers.base import Format, Header, RankHint, is_sqlite

SUFFIXES = (".nsys-rep", ".qdrep")

FORMAT = Format(
    "Nsight Systems", ".nsys-rep files or their exports, .sqlite files or folders of Parquet",
    suffixes=(".nsys-rep", ".sqlite", ".parquet"), is_general=True,
)  # fmt: skip


def recognises(path: Path) -> bool:
    """Whether it is a report by its name, an SQLite database, or a folder with an export's table of names."""
    if path.is_dir():
        return (path / "StringIds.parquet").is_file()
    return is_sqlite(path) or (path.suffix in SUFFIXES and path.is_file())


def peek(path: Path) -> Header:
    """The export's head; see `Reader.peek`.

    Raises:
        NotATraceError: it is no export after all, another export of the same report lies beside it and is read
            instead, or `nsys` is missing or fails.
    """
    from traceanalyzer.readers.nsys import traces

    database, folder = path.with_suffix(".sqlite"), path.with_name(f"{path.stem}_pqtdir")
    if path.is_dir():
        database = path.with_name(f"{path.name.removesuffix('_pqtdir')}.sqlite")
        if database.is_file():
            raise NotATraceError(f"{path}: {database.name} of the same report lies beside it; keep one of them")
    elif path.suffix in SUFFIXES:
        for export in (database, folder):
            if export.exists():
                raise NotATraceError(f"{path}: its export {export.name} lies beside it and is read instead")
    return traces.peek(_source(path), path)


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """Each rank of the export; see `Reader.read`.

    Raises:
        NotATraceError: nothing in it can be analysed, or `nsys` is missing or fails.
    """
    from traceanalyzer.readers.nsys import traces

    return traces.read(_source(path), path, hint, rules)


def _source(path: Path) -> Any:
    from traceanalyzer.readers.nsys.source import ParquetSource, SqliteSource

    if path.is_dir():
        return ParquetSource(path)
    return SqliteSource(exported(path) if path.suffix in SUFFIXES else path)


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


def _fingerprint(path: Path) -> str:
    status = path.stat()
    text = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
