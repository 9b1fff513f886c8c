"""An examination as one HTML page that needs no network, in the report's style."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from traceanalyzer import __version__
from traceanalyzer.doctor import Examination
from traceanalyzer.doctor.examination import TableName, tables
from traceanalyzer.doctor.topology import is_nvlink
from traceanalyzer.meaning.columns import Column, unit_of
from traceanalyzer.report import assets
from traceanalyzer.report.examination import picture
from traceanalyzer.report.words import wording

MOST_ROWS = 400
"""Rows of one table on the page; doctor.json has all."""

_TITLES: Mapping[TableName, str] = {
    "communicators": "Ranks and communicators",
    "transports": "Transport between ranks",
    "rings": "Rings",
    "algorithms": "Algorithms and protocols chosen",
    "environment": "Environment",
    "warnings": "Warnings",
    "last_calls": "Last collective of each rank",
    "late_ranks": "Who comes last",
    "bandwidth": "Bus bandwidth by collective and size",
    "xpu_timer_collectives": "xpu_timer: collectives of each rank",
    "xpu_timer_products": "xpu_timer: matrix products of each rank",
}


def write(examination: Examination, folder: Path, command: str | None = None) -> list[Path]:
    """`doctor.html`."""
    path = folder / "doctor.html"
    path.write_text(page(examination, command), encoding="utf-8", errors="replace")
    return [path]


def page(examination: Examination, command: str | None = None) -> str:
    """The page's text."""
    made = tables(examination.case)
    recorder, standing = examination.case.recorder, examination.case.standing
    context: dict[str, Any] = {
        "examination": examination,
        "verdict": examination.verdict,
        "facts": _facts(examination),
        "topology": examination.case.topology,
        "is_nvlink": is_nvlink,
        "pictures": [] if recorder is None or standing is None else picture.pictures(recorder, standing),
        "states": picture.STATES,
        "tables": [_table(name, made[name]) for name in _TITLES if name in made],
        "command": command,
        "version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return assets.render("doctor.html", context, entry="plain.js", styles=("doctor.css",))


def _facts(examination: Examination) -> list[str]:
    """What was given."""
    case = examination.case
    facts = []
    if case.topology is not None:
        facts.append(f"topology of {len(case.topology.gpus)} GPUs and {len(case.topology.nics)} network cards")
    facts += [f"NCCL log {log.label}, {log.nccl_lines:,} lines" for log in case.logs[:4]]
    if case.recorder is not None:
        facts.append(f"flight recorder of {len(case.recorder.dumps):,} ranks, {len(case.recorder.entries):,} calls")
    if case.inspector is not None:
        facts.append(f"NCCL Inspector, {len(case.inspector.calls):,} calls in {case.inspector.files} files")
    if case.xpu_timer is not None:
        facts.append(f"xpu_timer, {len(case.xpu_timer.samples):,} figures in {case.xpu_timer.files} files")
    if case.ras is not None:
        facts.append("RAS report")
    return facts


def _table(name: TableName, rows: list[dict[str, Any]]) -> dict[str, Any]:
    columns = [column for column in rows[0] if any(row[column] is not None for row in rows)]
    rows = [{**row, **{name: _moment(row[name]) for name in _MOMENTS if row.get(name) is not None}} for row in rows]
    if "log" in columns and len({row["log"] for row in rows}) == 1:
        columns.remove("log")
    numbers = {column for column in columns if all(_is_number(row[column]) for row in rows if row[column] is not None)}
    return {
        "name": name,
        "title": _TITLES[name],
        "columns": [
            {
                "name": column,
                "label": wording.label(column, Column.named(column)),
                "unit": "UTC" if column in _MOMENTS else unit_of(column) or "",
                "is_number": column in numbers,
            }
            for column in columns
        ],
        "rows": [[row[column] for column in columns] for row in rows[:MOST_ROWS]],
        "total": len(rows),
    }


def _moment(since_1970_ns: int) -> str:
    seconds, ns = divmod(since_1970_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{ns:09d}"


_MOMENTS = ("created_ns", "since_ns")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
