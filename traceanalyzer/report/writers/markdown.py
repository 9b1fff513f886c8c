"""A report as Markdown: what a pull request or a build's summary has room for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traceanalyzer.meaning import columns
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.vocabulary import COMM, COMPUTE, COPY, IDLE
from traceanalyzer.report import words
from traceanalyzer.report.contents import Report
from traceanalyzer.report.layout import LAYOUT
from traceanalyzer.report.words import split
from traceanalyzer.report.writers import write_text
from traceanalyzer.report.writers.gates import cell, line

_PARTS = (COMPUTE, COMM, COPY, IDLE)


def write(report: Report, folder: Path) -> list[Path]:
    """`summary.md`."""
    return [write_text(folder / "summary.md", as_markdown(report))]


def as_markdown(report: Report) -> str:
    """Verdict, a row a rank, findings with what to do, and what to know before trusting the figures."""
    lines = [f"## {cell(report.label)}", ""]
    lines += [f"- {cell(sentence)}" for sentence in words.sentences(report, split(report.results))]
    return "\n".join([*lines, "", *_ranks(report), *_findings(report), *_notes(report)]).rstrip() + "\n"


def _ranks(report: Report) -> list[str]:
    rows = report.results["headline"].rows()
    if not rows:
        return []
    head = ["rank", "step", *(f"{part.short} %" for part in _PARTS), "overlap %"]
    lines = [line(head), "|" + "---:|" * len(head)]
    shown = sorted(rows, key=lambda row: -(row["exposed_comm_ns"] or 0))[: LAYOUT.many_ranks]
    for row in shown if len(rows) > LAYOUT.many_ranks else rows:
        time = row["window_ns"] if row["step_mean_ns"] is None else row["step_mean_ns"]
        shares = [*_shares(row), columns.digits(row["overlap_pct"])]
        lines.append(line([str(row["rank"]), columns.text(time, Unit.NS), *shares]))
    left_out = f"; {LAYOUT.many_ranks} of {len(rows)} ranks, most exposed communication first"
    return [*lines, "", f"Of {cell(rows[0]['basis'])}{left_out if len(rows) > LAYOUT.many_ranks else ''}.", ""]


def _shares(row: Mapping[str, Any]) -> list[str]:
    return [columns.digits(row[part.share]) for part in _PARTS]


def _findings(report: Report) -> list[str]:
    every = [item for item in report.findings if not item.is_nothing]
    lines = []
    for finding in every[: LAYOUT.listed]:
        lines += [f"<details><summary><b>{cell(finding.severity)}</b>: {cell(finding.headline)}</summary>", ""]
        lines += [f"- **{name}**: {cell(text)}" for name, text in words.fields(finding).items()]
        lines += [f"- {cell(sign.headline)}" for sign in finding.also]
        lines += ["", "</details>", ""]
    more = len(every) - LAYOUT.listed
    return [*lines, *([f"{more} more findings in the report.", ""] if more > 0 else [])]


def _notes(report: Report) -> list[str]:
    notes = [f"> {cell(sentence)}" for sentence in (*report.remarks, *words.of_what_is_here(report))]
    return [
        *notes,
        *(f"> Skipped {cell(sentence)}" for sentence in words.skipped(report.skipped, most=LAYOUT.listed)),
    ]
