"""What all other analyses come to: their figures are those of the analyses that they put together."""

import pytest

from tests import once
from traceanalyzer.meaning.vocabulary import COMM_PARTS, IDLE_PARTS, PARTS

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


def test_over_ranks_are_the_mean_and_the_ends_of_the_ranks_cells():
    results = once.results("ddp")
    over, idle = results["over_ranks"], results["headline"].to_frame().set_index("rank")["idle_pct"]
    row = over.of("idle_pct")
    assert (row["mean_pct"], row["least_pct"], row["most_pct"]) == (idle.mean(), idle.min(), idle.max())
    assert (row["least_rank"], row["most_rank"], row["mean_ns"]) == (1, 0, None)
    assert over.of("mfu_pct")["mean_pct"] == pytest.approx(results["mfu"].by_rank().mean())
    assert over.of("window_ns")["mean_ns"] == results["headline"].to_frame()["step_mean_ns"].mean()
    assert over.of("comm_ns") == over.of("overlapped_comm_ns"), "no such row: no value"
