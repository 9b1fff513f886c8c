"""A comparison as one HTML page that needs no network."""

from pathlib import Path
from typing import Any

from traceanalyzer import __version__
from traceanalyzer.diff import Comparison, fairness
from traceanalyzer.meaning import quantities
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.report import assets
from traceanalyzer.report.comparison import (
    DiffReport,
    figures,
    memory,
    small_multiples,
    step_pictures,
    verdict,
    waterfall,
)
from traceanalyzer.report.comparison.rows import View, table_view
from traceanalyzer.report.comparison.tables import capture_notes

MOST_ROWS = 400
"""Rows of one table on the page; the CSV beside it has all."""


def write(report: DiffReport, folder: Path) -> list[Path]:
    """`summary.html`."""
    path = folder / "summary.html"
    path.write_text(page(report), encoding="utf-8", errors="replace")
    return [path]


def memory_page(held: memory.Memory, base: str, command: str | None) -> str:
    """The page of runs of which only memory snapshots are known."""
    context: dict[str, Any] = {
        "title": f"{', '.join(held)} against {base}: memory",
        "memory": memory_views(held),
        "command": command,
        "version": __version__,
    }
    return assets.render("memory_diff.html", context, entry="plain.js", styles=("diff.css",))


def page(report: DiffReport) -> str:
    """The page's text."""
    comparison = report.comparison
    context: dict[str, Any] = {
        "report": report,
        "version": report.version,
        "comparison": comparison,
        "of_all": verdict.of_all(comparison),
        "of_runs": verdict.of_runs(comparison),
        "doubt": verdict.doubt(comparison),
        "per": verdict.per(comparison),
        "facts": comparison.fairness.facts,
        "notes": [*comparison.fairness.notes, *capture_notes(report)],
        "waterfalls": {run: _bars(comparison, run, waterfall.parts(comparison, run)) for run in comparison.tables},
        "paths": {run: _bars(comparison, run, waterfall.path_parts(comparison, run)) for run in comparison.tables},
        "figures": figures.rows(comparison),
        "is_of_single_captures": figures.is_of_single_captures(comparison),
        "views": {run: _views(comparison, run) for run in comparison.tables},
        "memory": memory_views(memory.of(report)),
        "multiples": small_multiples.cards(comparison),
        "steps": step_pictures.of(comparison),
        "DIFFERS": fairness.DIFFERS,
    }
    return assets.render("diff.html", context, entry="comparison.js", styles=("diff.css",))


def memory_views(held: memory.Memory) -> list[dict[str, Any]]:
    """For each run and source what is said, and the rows that are shown with bars as wide as their changes."""
    made = []
    for run, sources in held.items():
        for source, change in sources.items():
            rows = memory.shown(change).to_dict("records")
            widest = max((abs(row["change_bytes"]) for row in rows), default=0) or 1
            bars = [{**row, "width": 50 * abs(row["change_bytes"]) / widest} for row in rows]
            is_whole = len(rows) == len(change.table)
            made.append(
                {"run": run, "source": source, "sentences": change.sentences, "rows": bars, "is_whole": is_whole}
            )
    return made


def _bars(comparison: Comparison, run: str, parts: list[waterfall.Part]) -> list[dict[str, Any]]:
    """Bars from the base's step to the run's: each with its place and length in per cent of the longest reach."""
    if not parts:
        return []
    base, at = sum(part.base_ns for part in parts), 0.0
    reaches = [base, base]
    for part in parts:
        reaches.append(reaches[-1] + part.change_ns)
    longest = max(reaches) or 1.0
    made = [{"label": comparison.base.label, "kind": "total", "at": 0.0, "width": 100 * base / longest,
             "text": quantities.text(base, Unit.NS), "detail": ""}]  # fmt: skip
    at = base
    for part in parts:
        made.append(
            {
                "label": part.label,
                "kind": part.kind,
                "at": 100 * min(at, at + part.change_ns) / longest,
                "width": 100 * abs(part.change_ns) / longest,
                "text": ("+" if part.change_ns > 0 else "") + quantities.text(part.change_ns, Unit.NS),
                "detail": f"{quantities.text(part.base_ns, Unit.NS)} → {quantities.text(part.other_ns, Unit.NS)}",
            }
        )
        at += part.change_ns
    made.append({"label": run, "kind": "total", "at": 0.0, "width": 100 * at / longest,
                 "text": quantities.text(at, Unit.NS), "detail": ""})  # fmt: skip
    return made


def _views(comparison: Comparison, run: str) -> list[View]:
    """Communication first, then operators and kernels, then what else there is."""
    order = {"collectives": 0, "comm_phases": 1, "nccl": 1, "operators": 2, "kernel_operations": 3, "kernels": 4}
    own = [table for table in comparison.tables[run] if table.analysis != memory.CATEGORIES]
    tables = sorted(own, key=lambda table: order.get(table.analysis, 9))
    return [table_view(table, MOST_ROWS) for table in tables if len(table.frame)]
