"""A report as Markdown: what a pull request or a build's summary has room for."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from traceanalyzer.findings import Finding
from traceanalyzer.report import words
from traceanalyzer.report.contents import Report
from traceanalyzer.report.layout import LAYOUT
from traceanalyzer.report.page.sections import rank_caption, rank_view
from traceanalyzer.report.page.table_view import TableView
from traceanalyzer.report.words import split
from traceanalyzer.report.writers import write_text
from traceanalyzer.report.writers.gates import cell, line


def write(report: Report, folder: Path) -> list[Path]:
    """`summary.md`."""
    return [write_text(folder / "summary.md", as_markdown(report))]


def as_markdown(report: Report) -> str:
    """The first screen: verdict, cards, a row a rank, and what to know before trusting the figures; under 80 lines."""
    of_ranks = split(report.results)
    verdict = words.verdict(report, of_ranks)
    blocks = [
        [f"## {cell(words.headline_of(report, of_ranks))}"],
        [f"**{cell(verdict.bound)}**: {cell(verdict.figures)}"] if verdict else [],
        [cell(sentence) for sentence in words.without_gpu_work(report)],
        list(_cards(words.cards(report.findings))),
        [cell(words.overlap(report.findings))],
        [f"- Also seen: {cell(words.fact(item))}" for item in words.also_seen(report.findings)[: LAYOUT.listed]],
        [cell(words.nothing_to_gain(report.findings))],
        [],
    ]
    if of_ranks:
        view = rank_view(report, of_ranks)
        left = len(view.rows) - LAYOUT.markdown_rows
        captions = (view.title, rank_caption(of_ranks, view), f"{left} more ranks in the report" if left > 0 else "")
        first = replace(view, rows=view.rows[: LAYOUT.markdown_rows])
        blocks += [table_lines(first), [cell("; ".join(filter(None, captions)))]]
    notes = [words.capture_line(report), *report.remarks, *words.of_files(report)]
    notes += [f"Skipped {sentence}" for sentence in words.skipped(report.skipped, most=LAYOUT.listed)]
    notes = [one for one in notes if one]
    more = [f"{len(notes) - LAYOUT.listed} more notes in the report."] if len(notes) > LAYOUT.listed else []
    blocks.append([f"> {cell(note)}" for note in (*notes[: LAYOUT.listed], *more)])
    return "\n\n".join("\n".join(block) for block in blocks if any(block)) + "\n"


def _cards(cards: list[Finding]) -> Iterator[str]:
    """The first findings with their fields, the others with what they save."""
    for number, finding in enumerate(cards[: LAYOUT.named + LAYOUT.listed], 1):
        yield f"{number}. **{cell(finding.headline)}**"
        fields = words.fields(finding)
        if number > LAYOUT.named:
            fields = {name: text for name, text in fields.items() if name == "Saves"}
        yield from (f"   - {name}: {cell(text)}" for name, text in fields.items())


def table_lines(view: TableView) -> list[str]:
    """A table in Markdown."""
    rule = "|".join(["", *("---:" if head.is_number else "---" for head in view.columns), ""])
    return [line(head.text for head in view.columns), rule, *(line(one.text for one in row) for row in view.rows)]
