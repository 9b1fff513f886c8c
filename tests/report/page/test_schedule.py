"""The picture of a pipeline's schedule has its table's stretches, at their places."""

import pytest

from tests import once
from traceanalyzer.analyses.communication.clocks import Clock
from traceanalyzer.report.rows import schedule

NEEDED = ("pipeline", "pipeline_schedule", "headline", "steps")


def test_each_stretch_of_the_last_complete_step_is_a_block():
    results = once.results("pp", NEEDED)
    table = results["pipeline_schedule"].to_frame()
    own = table[table["step"] == 4]
    made = schedule(results, Clock({}, 0, ""))
    assert made.title == "Schedule of step 4"
    length_ns = own["end_ns"].max() - own["start_ns"].min()
    for row in made.rows:
        blocks = own[own["rank"] == row.data["rank"]]
        assert [box.label.partition(" of")[0] for box in row.boxes] == blocks["phase"].tolist()
        assert [int(box.text) for box in row.boxes] == blocks["microbatch"].tolist()
        lengths = (blocks["end_ns"] - blocks["start_ns"]).sum()
        assert sum(box.width for box in row.boxes) == pytest.approx(100 * lengths / length_ns)
        assert all(box.at >= 0 and box.at + box.width <= 100.0001 for box in row.boxes)
    assert [row.end for row in made.rows] == ["47.4% bubble", "14.7% bubble"]
