"""The picture of a pipeline's schedule has its table's stretches, at their places."""

import pytest

from tests import once
from traceanalyzer.analyses.communication.clocks import Clock
from traceanalyzer.report.page.sections import schedule

NEEDED = ("pipeline", "pipeline_schedule", "headline", "steps")


def test_each_stretch_of_the_last_complete_step_is_a_block():
    results = once.results("pp", NEEDED)
    table = results["pipeline_schedule"].to_frame()
    own = table[table["step"] == 4]
    made = schedule(results, Clock({}, 0, "", is_common=True))
    assert (made.step, made.ranks, made.others) == (4, (0, 1), 0)
    assert made.length_ns == own["end_ns"].max() - own["start_ns"].min()
    for row in made.rows:
        blocks = own[own["rank"] == row.rank]
        assert [(block.phase, block.microbatch) for block in row.blocks] == list(
            zip(blocks["phase"], blocks["microbatch"], strict=True)
        )
        lengths = (blocks["end_ns"] - blocks["start_ns"]).sum()
        assert sum(block.width for block in row.blocks) == pytest.approx(100 * lengths / made.length_ns)
        assert all(block.place >= 0 and block.place + block.width <= 100.0001 for block in row.blocks)
    assert [round(row.bubble_pct) for row in made.rows] == [47, 15]
