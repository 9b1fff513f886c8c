"""The memory of compared runs: one table, by the traces' events and by snapshots, that adds up to the peak's change."""

import dataclasses

import pandas as pd

from tests.diff.captured import capture, side, steady
from tests.report.test_comparison import HOSTILE
from traceanalyzer.diff import compare
from traceanalyzer.report.comparison import DiffReport, writers
from traceanalyzer.report.comparison import rows as comparison_rows
from traceanalyzer.snapshots.comparison import COLUMNS, MemoryChange


def held(run, *rows):
    """The capture with rows `rank, category, bytes` of its peak."""
    table = pd.DataFrame(
        [{"rank": rank, "category": category, "blocks": 1, "peak_bytes": size} for rank, category, size in rows]
    )
    return dataclasses.replace(run, tables={**run.tables, "memory_categories": table})


BASE = held(capture(steady(10)), (0, "activations", 40), (0, "unknown", 60), (1, "activations", 5))
OTHER = held(capture(steady(10)), (0, "activations", 90), (0, "unknown", 60), (0, "gradients", 7))


def report(snapshots=None, name="other"):
    return DiffReport(compare([side("base", BASE), side(name, OTHER)]), snapshots=snapshots or {})


def test_traces_tell_the_peak_by_category_of_ranks_that_both_have():
    table = comparison_rows.frame(comparison_rows.of(report()))
    assert table["rank"].tolist() == [0, 0, 0, 0]
    assert table.set_index("name")["change_bytes"].to_dict() == {
        "peak": 57, "activations": 50, "gradients": 7, "unknown": 0,
    }  # fmt: skip
    assert table["source"].unique() == ["traces"]
    assert comparison_rows.sentences(comparison_rows.of(report())) == [
        "other, by its traces: Rank 0's peak goes from 100 B to 157 B: activations +50 B, gradients +7 B."
    ]


def test_each_form_of_the_comparison_has_it_once(tmp_path):
    told = report()
    page = writers.page(told)
    assert page.count('id="memory"') == 1
    assert "memory_categories__other" not in page
    assert 'data-v="57">+57' in page
    assert "Rank 0's peak goes from 100 B" in writers.as_markdown(told)
    assert [row["change_bytes"] for row in writers.as_json(told)["memory"]["rows"]] == [57, 50, 7, 0]
    assert tmp_path / "memory.csv" in writers.write_csv(told, tmp_path)


def test_without_memory_there_is_no_part_of_it():
    plain = DiffReport(compare([side("base", capture(steady(10))), side("other", capture(steady(9)))]))
    assert 'id="memory"' not in writers.page(plain)
    assert comparison_rows.frame(comparison_rows.of(plain)).empty


def test_snapshots_stand_beside_and_their_names_stay_text():
    row = [0, "site", HOSTILE, 0, 8, 8]
    change = MemoryChange(pd.DataFrame([[0, "peak", "peak", 0, 8, 8], row], columns=list(COLUMNS)), (HOSTILE,))
    page = writers.page(report({"other": change}))
    assert page.count("by memory snapshots") == page.count("by the traces’ events") == 1
    assert "<img" not in page


def test_of_many_ranks_those_are_shown_that_changed_most():
    rows = [[rank, "peak", "peak", 0, rank, rank] for rank in range(40)]
    own = comparison_rows.shown(MemoryChange(pd.DataFrame(rows, columns=list(COLUMNS)), ()))
    assert own["rank"].tolist() == [36, 37, 38, 39]
