import pytest

from tests.builders import rank_trace
from traceanalyzer.analyses import run
from traceanalyzer.report import rows
from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.words import split


def many(busy_of):
    traces = [
        rank_trace([("compute", 0, busy_of(rank)), ("comm", 900, 1000)], rank=rank) for rank in range(LAYOUT.many_ranks)
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
        assert set(rows.shown(made, others)["rank"]) == expected | {rows.middle(made)}
        assert rows.middle(made) not in expected


def test_equal_ranks_share_a_rectangle_and_all_have_a_place():
    made = rows.heat(many(lambda rank: 800 if rank == 5 else 400)[0])
    compute = next(row for row in made if row.part.kind == "compute")
    assert [round(box.width * LAYOUT.many_ranks / 100) for box in compute.boxes] == [5, 1, LAYOUT.many_ranks - 6]
    assert compute.boxes[1].label == "compute, rank 5: 80%"
    assert compute.end == "40–80%"
