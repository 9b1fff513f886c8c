"""Reports, documentation, help and docstrings use the field's words: none of the phrases below."""

import ast
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from tests import once
from tests.report.pages import Page
from tests.samples import FEW
from traceanalyzer.findings import find
from traceanalyzer.report.contents import Report
from traceanalyzer.report.writers import html
from traceanalyzer.report.writers import text as terminal

ROOT = Path(__file__).parents[1]

INSTEAD = {
    r"\bmend(?:ed|s|ing)?\b": "saves about … per step",
    r"mean step is|would be [\d.]+ ms shorter": "saves about … per step",
    r"\b(?:who|ranks?|hosts?) (?:is|are) late\b|\blate ranks?\b|\blateness\b": "straggler",
    r"\bhosts? needs?\b": "launching a step takes the CPU …",
    r"\bhosts? (?:decides?|binds?)\b|\bbound by (?:its|their|the) hosts?\b|\bhost-bound\b": "CPU-bound",
    r"idles? before work|ha(?:s|ve) not been launched yet": "idle, waiting for kernel launches",
    r"waits? for its data|data (?:is|are) ready": "input-bound; DataLoader stall",
    r"\btold\b|\b(?:is|are|was|were|be|been) (?:said|held)\b|\btaken for\b": "report, show, treat as, call",
    r"\bcan(?:not)? be told\b|\bnothing tells\b": "unknown (reason); low confidence",
    r"\bwhat ran\b|what runs there": "operators, kernels, frames",
    r"recording (?:slows|takes|costs) (?:the )?(?:hosts?|CPUs?)": "profiler overhead",
    r"computes? activations again": "activation recomputation",
    r"\bwritten out\b": "unfused",
    r"stages made even": "balanced stages",
    r"like the others'": "if it matched its peers",
    r"not separable": "exposed communication (unattributed)",
    r"nobody's fault|\bacquit\w*": "not a straggler",
    r"capture is clean": "no data-quality issues",
    r"figures are of": "covers the whole trace, not per step",
    r"count the same time": "savings overlap; don't add them up",
    r"replay is off by": "replay error",
    r"only a bound": "upper bound, lower bound",
    r"in turn, each in": "alternating",
    r"times in all\b": "N times",
    r"\bno one rank\b|\brank \d+'s waits\b|a step for (?:it|them)\b": "name the ranks",
    r"beside no other work|slower beside communication|as fast as alone": "exposed; while NCCL runs",
}
PHRASES = {re.compile(phrase, re.IGNORECASE): better for phrase, better in INSTEAD.items()}


def found_in(text: str) -> list[str]:
    return [
        f"…{text[max(0, match.start() - 40) : match.end() + 20]}… → {better}"
        for phrase, better in PHRASES.items()
        for match in phrase.finditer(text)
    ]


PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "skill/SKILL.md", ROOT / "sample_traces/README.md"]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_documentation(page):
    """Of the command line, too: `docs/reference/commands.md` has all of `--help`."""
    assert found_in(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", FEW)
def test_reports(name):
    results = once.results(name)
    report = Report(name, results, find(results))
    screen = io.StringIO()
    terminal.show(report, Console(file=screen, width=150))
    assert found_in(screen.getvalue()) == []
    assert found_in(Page(html.page(report)).text) == []


MODULES = sorted((ROOT / "traceanalyzer").rglob("*.py"))
ALL_ROOMS = sorted({module.relative_to(ROOT / "traceanalyzer").parts[0] for module in MODULES})


@pytest.mark.parametrize("room", ALL_ROOMS)
def test_docstrings_of_what_is_public(room):
    wrong = [
        f"{module.relative_to(ROOT)}: {text}"
        for module in MODULES
        if module.relative_to(ROOT / "traceanalyzer").parts[0] == room
        for text in found_in("\n".join(docstrings(module)))
    ]
    assert wrong == []


def docstrings(module: Path):
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and not getattr(node, "name", "").startswith(
            "_"
        ):
            yield ast.get_docstring(node) or ""
