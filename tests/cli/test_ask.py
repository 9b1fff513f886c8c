"""What a question's answer looks like on a terminal."""

import pytest
from rich.console import Console

from traceanalyzer.agents.answer import Answer
from traceanalyzer.cli import ask

ROW = {"rank": 0, "basis": "steps 2 to 3", "steps": 2, "fused_pct": None, "idle_ns": 5_000, "idle_pct": 71.7}


def columns(width, first=()):
    table = ask._table(Answer(rows=(ROW,)), width, first)
    return [str(column.header) for column in table.columns]


@pytest.mark.parametrize(
    ("width", "first", "shown"),
    [
        (80, (), ["rank", "basis", "steps", "idle_ns", "idle_pct"]),
        (32, (), ["rank", "basis", "steps"]),
        (24, ("idle_pct",), ["rank", "idle_pct"]),
        (32, ("idle_pct", "steps"), ["rank", "steps", "idle_pct"]),
        (5, ("idle_pct",), ["idle_pct"]),
    ],
    ids=["all that has a value", "as they come", "the one that is asked for", "in the table's order", "one at least"],
)
def test_columns_that_answer_have_room_before_others(width, first, shown):
    assert columns(width, first) == shown


def test_a_figure_has_its_own_unit():
    rows = ({"metric": "step_ns", "run": "ddp", "value": 66_800_000.0},)
    table = ask._table(Answer(rows=rows), 80, ())
    console = Console(width=80)
    with console.capture() as held:
        console.print(table)
    assert "66.8\u202fms" in held.get() or "66.8 ms" in held.get()


def test_a_finding_is_shown_with_its_signs_and_what_to_do():
    row = {"title": "It idles.", "severity": "high", "also": ["Kernels are short."], "recommendation": "Fuse them."}
    assert list(ask._lines(row)) == ["• It idles. (high)", "  – Kernels are short.", "  → Fuse them."]
