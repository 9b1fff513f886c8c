"""A single large trace is being decoded while the program loads what analyses it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from traceanalyzer.cli.options import cache_folder
from traceanalyzer.files.cached import is_known
from traceanalyzer.forks import IS_PROGRAM
from traceanalyzer.processes import cores_for_a_file


@contextmanager
def loaded_meanwhile(folder: Path | None, options: Mapping[str, Any]) -> Iterator[None]:
    """Load the program; where there is nothing but one large trace that the cache does not have, forks decode it."""
    path = _only_trace(folder, options)
    if path is None:
        _load()
        yield
        return
    from traceanalyzer.decoding.batches import decoded_ahead

    with decoded_ahead(path, cores_for_a_file(1, options["jobs"])) as is_begun:
        _load()
        if is_begun:  # what shows and writes is loaded now, too: this process would else be one of those that decode
            import traceanalyzer.report.writers.html
            import traceanalyzer.report.writers.tables
            import traceanalyzer.report.writers.terminal  # noqa: F401 - loaded, not used
        yield


def _load() -> None:
    from traceanalyzer.scale import set_up_process

    if IS_PROGRAM.get():
        set_up_process()


def _only_trace(folder: Path | None, options: Mapping[str, Any]) -> Path | None:
    """The file, where it seems to be all that there is to read; a wrong guess costs a moment."""
    if not IS_PROGRAM.get() or options["scheduler"] or options["ranks"]:
        return None
    with suppress(OSError):
        found = _named(folder, options)
        cache = cache_folder(options)
        if len(found) == 1 and found[0].suffix == ".json" and not (cache and is_known(cache, found[0])):
            return found[0]
    return None


def _named(folder: Path | None, options: Mapping[str, Any]) -> list[Path]:
    place = folder or options["trace_dir"]
    if place is None:
        return [*options["trace_files"]]
    return [one for one in place.iterdir() if one.name != "run.json"] if place.is_dir() else [place]
