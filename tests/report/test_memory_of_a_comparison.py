"""The memory of compared runs: one table, by the traces' events and by snapshots, that adds up to the peak's change."""

import dataclasses

import pandas as pd

from tests.diff.captured import capture, side, steady
from traceanalyzer.diff import compare
from traceanalyzer.report.comparison import DiffReport
from traceanalyzer.report.comparison import rows as comparison_rows


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
    table = comparison_rows.memory_frame(report().memory)
    assert table["rank"].tolist() == [0, 0, 0, 0]
    assert table.set_index("name")["change_bytes"].to_dict() == {
        "peak": 57, "activations": 50, "gradients": 7, "unknown": 0,
    }  # fmt: skip
    assert table["source"].unique() == ["traces"]
    assert comparison_rows.memory_sentences(report().memory) == [
        "other, by its traces: Rank 0's peak goes from 100 B to 157 B: activations +50 B, gradients +7 B."
    ]
