"""A comparison as Markdown, short enough for a comment on a pull request."""

from pathlib import Path

from traceanalyzer.diff import TableDiff, joins
from traceanalyzer.report.comparison import DiffReport, figures, memory, verdict
from traceanalyzer.report.comparison.rows import table_view
from traceanalyzer.report.writers import gates
from traceanalyzer.report.writers.gates import cell

MOST_ROWS = 12


def write(report: DiffReport, folder: Path) -> list[Path]:
    """`summary.md`."""
    path = folder / "summary.md"
    path.write_text(as_markdown(report), encoding="utf-8", errors="replace")
    return [path]


MOST_CHARACTERS = 60_000
"""A comment on a pull request holds 65,536."""


def as_markdown(report: DiffReport) -> str:
    """Warnings, verdict, gates, figures, and what is new, removed or changed as far as a comment has room for it."""
    comparison = report.comparison
    judged = comparison.fairness
    lines = [f"## {cell(report.title)}", "", f"**{cell(comparison.different)}**", ""]
    lines += [f"> **NOT COMPARABLE, forced:** {cell(reason)}" for reason in judged.refusals]
    lines.append("")
    lines += [f"- {cell(sentence)}" for sentence in verdict.sentences(comparison)]
    lines += [f"- {cell(sentence)}" for sentence in memory.sentences(memory.of(report))]
    lines += ["", *(f"*{cell(note)}*  " for note in judged.notes), ""]
    if report.outcomes:
        lines += [gates.as_markdown(report.outcomes)]
    lines += _figures(report)
    room = MOST_CHARACTERS - sum(len(line) + 1 for line in lines)
    for run, tables in comparison.tables.items():
        for table in tables:
            made = _table(table, run)
            room -= sum(len(line) + 1 for line in made)
            if room < 0:
                return "\n".join([*lines, "More tables are in the report.", ""])
            lines += made
    return "\n".join(lines) + "\n"


def _figures(report: DiffReport) -> list[str]:
    runs = report.comparison.runs
    head = ["figure", "unit", runs[0], *(name for run in runs[1:] for name in (run, "change"))]
    lines = [_line(head), "|---|---|" + "---:|" * (len(head) - 2)]
    for row in figures.rows(report.comparison):
        base, *others = row.cells
        cells = [base.text, *(part for one in others for part in (one.text, f"{one.change} {one.change_unit}".strip()))]
        lines.append(_line([row.label, row.unit, *cells]))
    return [*lines, ""]


def _table(table: TableDiff, run: str) -> list[str]:
    counts = table.counts()
    if not any(counts[status] for status in (joins.NEW, joins.REMOVED, joins.CHANGED)):
        return []
    view = table_view(table)
    changed = [row for row in view.rows if row.status != joins.SAME]
    told = ", ".join(f"{count} {status.lower()}" for status, count in counts.items() if count)
    lines = [f"<details><summary>{cell(table.title)}, {cell(run)}: {told}</summary>", ""]
    lines += [_line(["", *(f"{column.label} {column.unit}".strip() for column in view.columns)])]
    lines += ["|---" * (len(view.columns) + 1) + "|"]
    lines += [_line([row.status, *(one.text for one in row.cells)]) for row in changed[:MOST_ROWS]]
    more = len(changed) - MOST_ROWS
    return [*lines, "", *([f"{more} more rows in tables/."] if more > 0 else []), "</details>", ""]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(map(cell, cells)) + " |"
