"""A report as files: each form in which it can be written."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

Writer = Callable[..., list[Path]]
"""Writes a report into a folder and returns the files it made."""


def write_text(path: Path, text: str) -> Path:
    """Write a file, in which bytes of names that are no text are replaced; returns it."""
    path.write_text(text, encoding="utf-8", errors="replace")
    return path


def load_and_write(module: str, function: str, report: Any, folder: Path, **options: Any) -> list[Path]:
    """Write a report by a function of a module, which is loaded when it is first needed."""
    made: list[Path] = getattr(import_module(module), function)(report, folder, **options)
    return made


def _writer(place: str) -> Writer:
    module, function = place.split(".")
    return partial(load_and_write, f"{__name__}.{module}", function)


WRITERS: Mapping[str, Writer] = MappingProxyType(
    {
        "html": _writer("html.write"),
        "csv": _writer("tables.write_csv"),
        "json": _writer("tables.write_json"),
        "parquet": _writer("tables.write_parquet"),
        "md": _writer("markdown.write"),
        "xlsx": _writer("workbook.write"),
    }
)
"""By the name that `--format` takes."""
