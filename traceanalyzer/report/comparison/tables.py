"""A comparison as CSV and JSON."""

import json
import re
from pathlib import Path
from typing import Any

from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.diff import fairness
from traceanalyzer.report.comparison import FORMAT_VERSION, DiffReport, memory, verdict
from traceanalyzer.report.writers.tables import write_frame


def write_csv(report: DiffReport, folder: Path) -> list[Path]:
    """`summary.csv` (a row for each figure and run), `memory.csv`, and for each other run and table `tables/…csv`."""
    comparison = report.comparison
    summary = folder / "summary.csv"
    write_frame(comparison.metrics.assign(**_watermark(report)), summary)
    tables = folder / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    paths = [summary, *memory.write_csv(memory.of(report), folder)]
    for prefix, of_runs in (("", comparison.tables), ("by_rank_", comparison.by_rank)):
        for run, own in of_runs.items():
            for table in own:
                paths.append(tables / f"{prefix}{table.analysis}__{plain_name(run)}.csv")
                write_frame(table.frame.assign(**_watermark(report)), paths[-1])
    return paths


def write_json(report: DiffReport, folder: Path) -> list[Path]:
    """`summary.json`: facts, figures, joined tables, gates."""
    path = folder / "summary.json"
    path.write_text(
        json.dumps(as_json(report), indent=1, allow_nan=False, ensure_ascii=False), encoding="utf-8", errors="replace"
    )
    return [path]


def as_json(report: DiffReport) -> dict[str, Any]:
    """The content of `summary.json`; absent values are null."""
    comparison = report.comparison
    judged, held = comparison.fairness, memory.of(report)
    return {
        "format": "traceanalyzer-diff",
        "format_version": FORMAT_VERSION,
        "created": report.created,
        "version": report.version,
        "command": report.command,
        "different": comparison.different,
        "base": comparison.base.label,
        "runs": comparison.runs,
        "ranking": comparison.ranking,
        "per": judged.scale.name,
        "is_fair": judged.is_fair,
        "is_forced": comparison.is_forced,
        "refusals": list(judged.refusals),
        "notes": [*judged.notes, *capture_notes(report)],
        "verdict": verdict.sentences(comparison),
        "facts": plain_rows(fairness.as_frame(judged.facts, comparison.runs)),
        "metrics": plain_rows(comparison.metrics),
        "tables": {
            run: {table.analysis: plain_rows(table.frame) for table in own} for run, own in comparison.tables.items()
        },
        "memory": {"verdict": memory.sentences(held), "rows": plain_rows(memory.frame(held))},
        "gates": [
            {"gate": one.gate, "run": one.run, "status": one.status, "message": one.message, "rows": _plain(one.rows)}
            for one in report.outcomes
        ],
    }


def capture_notes(report: DiffReport) -> list[str]:
    """What readers of each run's captures said."""
    return [
        f"{side.label}: {note}"
        for side in report.comparison.sides
        for capture in side.captures
        for note in capture.notes
    ]


def plain_name(run: str) -> str:
    """A run's name as part of a file name."""
    return re.sub(r"[^\w.-]+", "-", run).strip("-") or "run"


def _watermark(report: DiffReport) -> dict[str, str]:
    return {"warning": "NOT COMPARABLE, forced"} if report.comparison.is_forced else {}


def _plain(values: Any) -> Any:
    """Rows of an outcome without infinities, which JSON cannot hold."""
    return json.loads(json.dumps(list(values), default=float).replace("Infinity", "null").replace("NaN", "null"))
