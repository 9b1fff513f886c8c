"""What all other analyses come to: their figures are those of the analyses that they put together."""

import pytest

from tests import once
from traceanalyzer.meaning.vocabulary import COMM_PARTS, IDLE_PARTS, PARTS
from traceanalyzer.report.words import figures_of_ranks

CAPTURES = ["ddp", "moe", "pp", "nsys_naive"]


@pytest.mark.parametrize("name", CAPTURES)
def test_parts_of_a_mean_step_are_the_headlines_and_add_up(name):
    results = once.results(name)
    head, parts = (results[each].to_frame().set_index("rank") for each in ("headline", "time_parts"))
    steps = head["steps"].fillna(1)
    for part in PARTS:
        assert parts[part.column].tolist() == pytest.approx((head[part.column] / steps).tolist())
        assert parts[part.share].tolist() == head[part.share].tolist(), "the same quotient, to the last digit"
    for whole, own in (("exposed_comm_ns", COMM_PARTS), ("idle_ns", IDLE_PARTS)):
        total = parts[[part.column for part in own]].sum(axis=1)
        assert total.tolist() == pytest.approx(parts[whole].tolist())


def test_figures_of_ranks_are_those_of_the_headline_and_of_mfu():
    results = once.results("ddp")
    over, heads = figures_of_ranks(results), results["headline"].to_frame().set_index("rank")
    assert over["idle_pct"].tolist() == heads["idle_pct"].tolist()
    assert over["mfu_pct"].mean() == pytest.approx(results["mfu"].by_rank().mean())
    assert over["window_ns"].mean() == heads["step_mean_ns"].mean()
    assert over["fused_pct"].tolist() == heads["fused_pct"].tolist()
