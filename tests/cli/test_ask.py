"""What a question's answer looks like on a terminal."""

import pytest
from rich.console import Console

from traceanalyzer.agents.verbs import Answer
from traceanalyzer.cli import ask

ROW = {"rank": 0, "basis": "steps 2 to 3", "steps": 2, "fused_pct": None, "idle_ns": 5_000, "idle_pct": 71.7}


def columns(width, first=()):
    table = ask._table(Answer(rows=(ROW,)), width, first)
    return [str(column.header) for column in table.columns]


@pytest.mark.parametrize(
    ("width", "first", "shown"),
    [
        (80, (), ["rank", "basis", "steps", "idle", "idle"]),
        (25, (), ["rank", "steps", "idle"]),
        (17, ("idle_pct",), ["rank", "idle"]),
        (25, ("idle_pct", "steps"), ["rank", "steps", "idle"]),
        (5, ("idle_pct",), ["idle"]),
    ],
    ids=[
        "all that has a value",
        "what a page shows at once",
        "the one that is asked for",
        "in the table's order",
        "one at least",
    ],
)
def test_columns_that_answer_have_room_before_others(width, first, shown):
    assert columns(width, first) == shown


def test_heads_have_no_unit_that_the_figures_contradict_and_names_stand_below():
    table = ask._table(Answer(rows=({"rank": 0, "is_open": True, "window_ns": 63_100_000},)), 80, ())
    assert [str(column.header) for column in table.columns] == ["rank", "open", "window"]
    assert [next(iter(column.cells)) for column in table.columns] == ["0", "yes", "63.1\u202fms"]
    assert table.caption == "All columns, as --json names them: rank, is_open, window_ns"


def test_a_table_is_named_as_it_is_asked_for():
    row = {"id": "call_waits", "rows": 1, "title": "Transfer and wait of each call", "row": "One row.", "key": "rank"}
    assert list(ask._lines(row)) == ["call_waits: Transfer and wait of each call (1 row)"]


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
