"""A report's figures are cells of Results: its files choose, order, write and place them, and compute none."""

import ast
from pathlib import Path

from traceanalyzer import report
from traceanalyzer.report import assets

ROOM = Path(report.__file__).parent

OF_SEVERAL = {"comparison", "examination.py", "snapshots.py", "trend.py"}
"""Rooms of what is no report of one run: their figures are those of comparisons, logs and snapshots."""

METHODS = {"agg", "aggregate", "apply", "cov", "cumsum", "mean", "median", "pivot_table", "prod", "quantile", "std",
           "sum", "transform", "var"}  # fmt: skip
FUNCTIONS = {"percent", "ratio", "sum"}

CHOSEN = "which rows are drawn, and in which order"
PLACED = "where something is drawn, and how large"
COUNTED = "how many rows or columns there are"
HELD = "a sum is held against a figure, and none is said"

REASONS = {
    "page/heat.py:middle": CHOSEN,
    "page/heat.py:_row": PLACED,
    "page/charts.py:icicle": CHOSEN,
    "page/charts.py:_trace": PLACED,
    "page/charts.py:tree": PLACED,
    "page/charts.py:_colour": PLACED,
    "page/charts.py:queue_lines": CHOSEN,
    "page/sections.py:schedule": CHOSEN,
    "page/sections.py:sends": CHOSEN,
    "page/sections.py:loads": CHOSEN,
    "page/table_view.py:view_of": COUNTED,
    "page/charts.py:_strip": PLACED,
    "page/sections.py:wait_matrix": CHOSEN,
    "timeline.py:_block": PLACED,
    "timeline.py:host_lanes": COUNTED,
    "timeline.py:of": PLACED,
    "timeline.py:_held_on": PLACED,
    "timeline.py:_kept": COUNTED,
    "writers/tables.py:beside_json": COUNTED,
    "writers/terminal.py:_show_findings": HELD,
}
"""Why a function adds up nevertheless: nothing of what it adds up is said as a figure."""


def adding(tree):
    """Names of the functions of a file that add up, or take a mean, a share or the like."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
            called = {call.attr for call in calls if isinstance(call, ast.Attribute)} & METHODS
            if called or {call.id for call in calls if isinstance(call, ast.Name)} & FUNCTIONS:
                yield function.name


def test_the_report_of_a_run_computes_no_figure():
    found = {
        f"{path.relative_to(ROOM).as_posix()}:{name}"
        for path in ROOM.rglob("*.py")
        if path.relative_to(ROOM).parts[0] not in OF_SEVERAL
        for name in adding(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set(REASONS), "make it a column of a Result beside its analysis, or say here why it is no figure"


def test_no_section_of_a_page_adds_up():
    for path in (assets.templates() / "sections").iterdir():
        text = path.read_text(encoding="utf-8")
        assert not [word for word in ("| sum", ".sum(", ".mean(", ".max(", ".min(") if word in text], path.name


def test_what_adds_up_is_found():
    assert [*adding(ast.parse("def total(rows):\n    return rows['wait_ns'].sum()"))] == ["total"]
    assert [*adding(ast.parse("def share(a, b):\n    return percent(a, b)"))] == ["share"]
    assert [*adding(ast.parse("def longest(rows):\n    return rows.nlargest(3, 'wait_ns')"))] == []
