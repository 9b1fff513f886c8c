"""All runs of a comparison side by side: bars of every rank on one scale, in parts that add up."""

import pytest

from tests import once
from traceanalyzer.diff import compare
from traceanalyzer.diff.captures import Capture, Side, of_results, shared_steps
from traceanalyzer.meaning.vocabulary import WAIT
from traceanalyzer.report.comparison.rows import cards


def capture(name, **changed):
    tables = of_results(once.results(name)) | changed
    return Capture(name, "traces", tables, shared_steps(tables["steps"], tables["breakdown"]), is_exact=True)


def compared(*captures):
    return compare([Side(f"{place} {each.label}", (each,)) for place, each in enumerate(captures)], force=True)


@pytest.fixture(scope="module")
def three():
    return compared(capture("ddp"), capture("fsdp_full"), capture("ddp"))


def test_every_rank_of_every_run_has_a_bar_whose_parts_add_up(three):
    made, _ = cards(three)
    assert [[bar.name for bar in card.bars] for card in made] == [["rank 0", "rank 1"]] * 3
    assert made[0].change == "the base"
    assert made[2].change == "0%"
    widths = [sum(box.width for box in bar.boxes) for card in made for bar in card.bars]
    assert max(widths) == pytest.approx(100)
    side = three.sides[1].first
    windows = side.table("headline")["window_ns"].astype(float) / three.fairness.scale.divisor(side)
    assert widths[2] / widths[3] == pytest.approx(windows[0] / windows[1])
    assert any(box.look == WAIT.kind for bar in made[0].bars for box in bar.boxes)
