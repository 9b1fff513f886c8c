"""What became of the gates: JUnit XML for a build server, Markdown for a pull request, lines for the terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.markup import escape

from traceanalyzer.gate import FAILED, NOT_AVAILABLE, PASSED, SKIPPED, Outcome

_MARKS: Mapping[str, str] = {PASSED: "✅", FAILED: "❌", NOT_AVAILABLE: "❌", SKIPPED: "⏭️"}

_COLOURS: Mapping[str, str] = {PASSED: "green", FAILED: "red", NOT_AVAILABLE: "red", SKIPPED: "yellow"}

_MOST_ROWS = 20


def write(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """`gate.xml` (JUnit) and `gate.md`."""
    xml, markdown = folder / "gate.xml", folder / "gate.md"
    xml.write_bytes(junit(outcomes))
    markdown.write_text(as_markdown(outcomes), encoding="utf-8")
    return [xml, markdown]


def junit(outcomes: Sequence[Outcome]) -> bytes:
    """One test case for each gate, run and case; a figure that is not available is an error."""
    suite = ET.Element("testsuite", {"name": "analyze-traces", "tests": str(len(outcomes)), **_counts(outcomes)})
    for outcome in outcomes:
        case = ET.SubElement(
            suite, "testcase", {"classname": _xml(outcome.run), "name": _xml(f"{outcome.gate} ({outcome.message})")}
        )
        tag = {FAILED: "failure", NOT_AVAILABLE: "error", SKIPPED: "skipped"}.get(outcome.status)
        if tag:
            ET.SubElement(case, tag, {"message": _xml(outcome.message)}).text = _xml("\n".join(map(_row, outcome.rows)))
    made: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return made


def as_markdown(outcomes: Sequence[Outcome]) -> str:
    """A table of all gates, and the failing rows below it."""
    lines = ["| | gate | run | figure |", "|---|---|---|---|"]
    lines += [
        f"| {_MARKS[one.status]} | {code(one.gate)} | {cell(one.run)} | {cell(one.message)} |" for one in outcomes
    ]
    for outcome in outcomes:
        if outcome.rows:
            lines += ["", f"<details><summary>{cell(outcome.gate)}, {cell(outcome.run)}: rows</summary>", ""]
            lines += [f"- {cell(_row(row))}" for row in outcome.rows[:_MOST_ROWS]]
            lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def show(outcomes: Sequence[Outcome], console: Console) -> None:
    """Print each gate with its figure, and the rows of those that failed."""
    for outcome in outcomes:
        colour = _COLOURS[outcome.status]
        console.print(f"[{colour}]{outcome.status.upper()}[/] {escape(outcome.gate)} · {escape(outcome.run)}: "
                      f"{escape(outcome.message)}", highlight=False, soft_wrap=True)  # fmt: skip
        for row in outcome.rows[:_MOST_ROWS]:
            console.print(f"    {escape(_row(row))}", highlight=False, soft_wrap=True)
        if len(outcome.rows) > _MOST_ROWS:
            console.print(f"    and {len(outcome.rows) - _MOST_ROWS} more rows", highlight=False)


def cell(text: Any) -> str:
    """Text that stays inside a cell of a Markdown table and makes no HTML."""
    plain = str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("|", "\\|").replace("\n", " ")


def code(text: str) -> str:
    """A gate in monospace."""
    return f"`{text.replace('`', '').replace('|', chr(92) + '|')}`"


def _counts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    of = {"failures": FAILED, "errors": NOT_AVAILABLE, "skipped": SKIPPED}
    return {name: str(sum(one.status == status for one in outcomes)) for name, status in of.items()}


def _row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in row.items())


def _value(value: Any) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _xml(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(character for character in text if character in "\t\n" or character >= " ")
