import pytest

from tests.builders import rank_trace
from traceanalyzer.analyses import run
from traceanalyzer.report.page import heat
from traceanalyzer.report.words import split


def many(busy_of):
    traces = [
        rank_trace([("compute", 0, busy_of(rank)), ("comm", 900, 1000)], rank=rank) for rank in range(heat.MANY_RANKS)
    ]
    results = run(traces, ["headline", "steps", "time_parts", "unlike_ranks"])
    made = split(results)
    assert made is not None
    return made, results["unlike_ranks"]


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        pytest.param({5}, {5}, marks=pytest.mark.thorough),
        ({5, 9}, {5, 9}),
        pytest.param(set(), set(), marks=pytest.mark.thorough),
    ],
)
def test_ranks_unlike_the_others_are_named(slow, expected):
    made, others = many(lambda rank: 800 if rank in slow else 400 + rank % 3)
    assert set(others.table["rank"]) == expected
    if expected:
        assert set(heat.shown(made, others)["rank"]) == expected | {heat.middle(made)}
        assert heat.middle(made) not in expected


def test_equal_ranks_share_a_rectangle_and_all_have_a_place():
    rows = heat.heat_rows(many(lambda rank: 800 if rank == 5 else 400)[0])
    compute = next(row for row in rows if row.part.kind == "compute")
    assert [round(run.width * heat.MANY_RANKS / 100) for run in compute.runs] == [5, 1, heat.MANY_RANKS - 6]
    assert compute.runs[1].label == "compute, rank 5: 80.0 %"
    assert (compute.low, compute.high, compute.span) == (40.0, 80.0, "40 to 80 %")
