"""All runs of a comparison side by side: bars of every rank on one scale, in parts that add up."""

import pandas as pd
import pytest

from tests import once
from traceanalyzer.diff import compare
from traceanalyzer.diff.captures import Capture, Side, of_results, shared_steps
from traceanalyzer.meaning.vocabulary import WAIT
from traceanalyzer.report.comparison.pictures import MOST_RANKS, cards


def capture(name, **changed):
    tables = of_results(once.results(name)) | changed
    return Capture(name, "traces", tables, shared_steps(tables["steps"], tables["breakdown"]), is_exact=True)


def compared(*captures):
    return compare([Side(f"{place} {each.label}", (each,)) for place, each in enumerate(captures)], force=True)


@pytest.fixture(scope="module")
def three():
    return compared(capture("ddp"), capture("fsdp_full"), capture("ddp"))


def test_every_rank_of_every_run_has_a_bar_whose_parts_add_up(three):
    made = cards(three)
    assert [[bar.label for bar in card.bars] for card in made.cards] == [["rank 0", "rank 1"]] * 3
    assert made.cards[0].change == "the base"
    assert made.cards[2].change == "0 %"
    widths = [sum(piece.width for piece in bar.pieces) for card in made.cards for bar in card.bars]
    assert max(widths) == pytest.approx(100)
    side = three.sides[1].first
    windows = side.table("headline")["window_ns"].astype(float) / three.fairness.scale.divisor(side)
    assert widths[2] / widths[3] == pytest.approx(windows[0] / windows[1])
    assert any(piece.part is WAIT for bar in made.cards[0].bars for piece in bar.pieces)


def test_of_many_ranks_the_mean_is_drawn():
    def repeated(table):
        return pd.concat([table.assign(rank=table["rank"] + 2 * copy) for copy in range(MOST_RANKS)], ignore_index=True)

    own = capture("ddp")
    many = {name: repeated(own.tables[name]) for name in ("headline", "exposed_comm", "idle")}
    made = cards(compared(own, capture("ddp", **many)))
    (bar,) = made.cards[1].bars
    assert bar.label == f"mean of {2 * MOST_RANKS} ranks"
    of_two = [sum(piece.width for piece in one.pieces) for one in made.cards[0].bars]
    assert sum(piece.width for piece in bar.pieces) == pytest.approx(sum(of_two) / 2)


def test_runs_whose_parts_nobody_told_have_no_bars():
    none = {"headline": of_results(once.results("ddp"))["headline"].iloc[:0]}
    assert cards(compared(capture("ddp"), capture("ddp", **none))) is None
    made = cards(compared(capture("ddp"), capture("ddp", **none), capture("ddp")))
    assert [len(card.bars) for card in made.cards] == [2, 0, 2]
