"""A report as CSV, JSON and Parquet: the same rows and column names as the library's."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from traceanalyzer.findings import Finding
from traceanalyzer.report import FORMAT_VERSION, Report


def write_csv(report: Report, folder: Path) -> list[Path]:
    """`summary.csv` with the breakdown's row for each rank, and `tables/<analysis>.csv`."""
    summary = folder / "summary.csv"
    write_frame(report.results["breakdown"].to_frame(), summary)
    paths = _places(report, folder, "csv")
    for name, path in paths.items():
        write_frame(report.results[name].to_frame(), path)
    return [summary, *paths.values()]


def write_json(report: Report, folder: Path) -> list[Path]:
    """`summary.json`: what the report says, without the tables that have a row for each event."""
    path = folder / "summary.json"
    path.write_text(json.dumps(as_json(report), indent=1, allow_nan=False, ensure_ascii=False), encoding="utf-8")
    return [path]


def write_parquet(report: Report, folder: Path) -> list[Path]:
    """`tables/<analysis>.parquet`."""
    paths = _places(report, folder, "parquet")
    for name, path in paths.items():
        report.results[name].to_frame().to_parquet(path, index=False)
    return list(paths.values())


def as_json(report: Report) -> dict[str, Any]:
    """The content of `summary.json`; absent values are null."""
    return {
        "format_version": FORMAT_VERSION,
        "label": report.label,
        "created": report.created,
        "version": report.version,
        "command": report.command,
        "run_info": msgspec.to_builtins(report.run_info) if report.run_info else None,
        "ranks": report.results["ranks"].to_frame()["rank"].tolist(),
        "results": {name: result.rows() for name, result in report.results.items() if not result.is_detail},
        "findings": [_finding(finding) for finding in report.findings],
        "skipped": [{"what": item.what, "why": item.why} for item in report.skipped],
        "notes": list(report.notes),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    named = {name: getattr(finding, name) for name in finding.__dataclass_fields__}
    return named | {"also": [_finding(item) for item in finding.also]}


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV that no spreadsheet runs as formulas."""
    # Names come from the trace: one that would run gets an apostrophe.
    texts = {name: frame[name].map(_inert, na_action="ignore") for name in frame if _holds_text(frame[name])}
    frame.assign(**texts).to_csv(path, index=False)


def _holds_text(column: pd.Series) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype) or not pd.api.types.is_numeric_dtype(column.dtype)


def _inert(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.lstrip()[:1] in _FORMULA and value.strip() else value


_FORMULA = ("=", "+", "-", "@")


def _places(report: Report, folder: Path, suffix: str) -> dict[str, Path]:
    """Files of the tables, by Result."""
    tables = folder / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    return {name: tables / f"{name}.{suffix}" for name, result in report.results.items() if not result.is_event_copy}
