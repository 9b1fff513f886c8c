"""The bars' pieces are the parts of the headline, one after another."""

import pytest

from tests import once
from traceanalyzer.report.rows import bars
from traceanalyzer.report.words import split


def test_pieces_add_up_to_the_window_and_stand_side_by_side():
    results = once.results("ddp")
    parts = split(results)
    made = bars(parts, results["unlike_ranks"])
    longest = parts.table["window_ns"].max()
    assert [bar.data["rank"] for bar in made] == parts.table["rank"].tolist()
    for bar in made:
        assert sum(box.data["ns"] for box in bar.boxes) == pytest.approx(bar.data["window"])
        ends = [box.at + box.width for box in bar.boxes]
        assert [box.at for box in bar.boxes] == pytest.approx([0, *ends[:-1]])
        assert ends[-1] == pytest.approx(100 * bar.data["window"] / longest)
