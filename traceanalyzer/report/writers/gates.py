"""What became of the gates: JUnit XML for a build server, Markdown for a pull request, lines for the terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.markup import escape

from traceanalyzer.analyses import column_named
from traceanalyzer.gate import FAILED, INCONCLUSIVE, PASSED, SKIPPED, UNKNOWN, Outcome
from traceanalyzer.gate.grammar import with_unit
from traceanalyzer.meaning.columns import scale
from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.words import label
from traceanalyzer.report.writers import write_text
from traceanalyzer.report.writers.text import cell

_MARKS: Mapping[str, str] = {PASSED: "✅", FAILED: "❌", UNKNOWN: "❌", SKIPPED: "⏭️", INCONCLUSIVE: "❔"}

_COLOURS: Mapping[str, str] = {
    PASSED: "green", FAILED: "red", UNKNOWN: "red", SKIPPED: "yellow", INCONCLUSIVE: "yellow",
}  # fmt: skip

_WHOLE = 100_000
"""From here on a value has six digits before the point."""


def write(outcomes: Sequence[Outcome], folder: Path, *, inconclusive_fails: bool = True) -> list[Path]:
    """`gate.xml` (JUnit) and `gate.md`; nothing without gates."""
    if not outcomes:
        return []
    xml = folder / "gate.xml"
    xml.write_bytes(junit(outcomes, inconclusive_fails=inconclusive_fails))
    return [xml, write_text(folder / "gate.md", as_markdown(outcomes))]


def junit(outcomes: Sequence[Outcome], *, inconclusive_fails: bool = True) -> bytes:
    """One test case for each gate, run and case, of the same name in every build.

    A figure that cannot be judged is an error; an inconclusive one is too, or skipped where that lets the build pass.
    """
    tags = {FAILED: "failure", UNKNOWN: "error", SKIPPED: "skipped",
            INCONCLUSIVE: "error" if inconclusive_fails else "skipped"}  # fmt: skip
    outcome_tags = [tags.get(outcome.status, "") for outcome in outcomes]
    counts = {
        f"{tag}s".replace("skippeds", "skipped"): str(outcome_tags.count(tag))
        for tag in ("failure", "error", "skipped")
    }
    suite = ET.Element("testsuite", {"name": "analyze-traces", "tests": str(len(outcomes)), **counts})
    for outcome, tag in zip(outcomes, outcome_tags, strict=True):
        case = ET.SubElement(suite, "testcase", {"classname": _xml(outcome.run), "name": _xml(outcome.name)})
        text = "\n".join([outcome.message, *map(_row, outcome.rows)])
        if tag:
            ET.SubElement(case, tag, {"message": _xml(outcome.message)}).text = _xml(text)
        else:
            ET.SubElement(case, "system-out").text = _xml(text)
    made: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return made


def as_markdown(outcomes: Sequence[Outcome]) -> str:
    """A table of all gates, and the failing rows below it."""
    lines = ["| | fails if | run | figure |", "|---|---|---|---|"]
    lines += [
        f"| {_MARKS[one.status]} {one.status} | {code(one.gate)} | {cell(one.run)} | {cell(one.message)} |"
        for one in outcomes
    ]
    for outcome in outcomes:
        if outcome.rows:
            lines += ["", f"<details><summary>{cell(outcome.gate)}, {cell(outcome.run)}: rows</summary>", ""]
            lines += [f"- {cell(_row(row))}" for row in outcome.rows[: LAYOUT.markdown_rows]]
            lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def show(outcomes: Sequence[Outcome], console: Console) -> None:
    """Print each gate with its figure, and the rows of those that failed.

    A quiet console prints nothing: those that did not pass are then said on standard error.
    """
    if console.quiet:
        outcomes = [one for one in outcomes if one.status in (FAILED, UNKNOWN, INCONCLUSIVE)]
        console = Console(stderr=True)
    for outcome in outcomes:
        colour = _COLOURS[outcome.status]
        text = escape(f"{outcome.run}: {outcome.message}")
        console.print(f"[{colour}]{outcome.status.upper()}[/] {text}", highlight=False, soft_wrap=True)
        for row in outcome.rows[: LAYOUT.markdown_rows]:
            console.print(f"    {escape(_row(row))}", highlight=False, soft_wrap=True)
        if len(outcome.rows) > LAYOUT.markdown_rows:
            console.print(f"    and {len(outcome.rows) - LAYOUT.markdown_rows} more rows", highlight=False)


def code(text: str) -> str:
    """A gate in monospace."""
    return f"`{text.replace('`', '').replace('|', chr(92) + '|')}`"


def _row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{label(name, column_named(name))} {_value(name, value)}" for name, value in row.items())


def _value(name: str, value: Any) -> str:
    """With its unit, and digits enough to see on which side of a limit it is; large ones in full."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    own = scale(column_named(name).unit, [abs(value)])
    if own.symbol:
        return with_unit(f"{value / own.divisor:,.5g}", own.symbol)
    return f"{value:,.0f}" if abs(value) >= _WHOLE else f"{value:,.6g}"


def _xml(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(character for character in text if character in "\t\n" or character >= " ")
