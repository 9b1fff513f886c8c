"""Runs of which one lacks ranks are compared by those that all have."""

import pytest

from tests.builders import rank_trace
from tests.diff.captured import STEPS, capture, side
from traceanalyzer.diff import compare, metrics
from traceanalyzer.diff.sources import with_same_ranks
from traceanalyzer.model import TraceSet
from traceanalyzer.report.comparison import compare as compare_in_python


def uneven(ranks, size):
    """Of a job of so many ranks these: rank n computes for n + 1 times 10 ns in each step."""
    return [
        rank_trace(
            [("compute", at, at + 10 * (rank + 1), number) for number, at in ((1, 1000), (101, 1100), (201, 1200))],
            rank=rank, steps=STEPS, wanted="complete", world_size=size,
        )
        for rank in ranks
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("held", "common", "notes"),
    [
        ([(0, 1), (0,)], {0}, ["run 1 has no trace of rank 1"]),
        ([(0, 1, 2), (1, 2, 3)], {1, 2}, ["run 0 has no trace of rank 3", "run 1 has no trace of rank 0"]),
        ([(0, 1, 2, 3), (2,), (1, 2, 3)], {2},
         ["run 1 has no trace of ranks 0, 1 and 3", "run 2 has no trace of rank 0"]),
        ([(0, 1), (2, 3)], None, []),
        ([(0, 1), (0, 1)], None, []),
    ],
)  # fmt: skip
def test_runs_are_compared_by_the_ranks_that_all_have(held, common, notes):
    def read(place, ranks=None):
        return side(f"run {place}", capture(uneven(sorted(ranks or held[place]), 4), f"run {place}"))

    sides = with_same_ranks([read(place) for place in range(len(held))], read)
    compared = compare(sides)
    for one, own in zip(compared.sides, held, strict=True):
        assert set(one.first.tables["ranks"]["rank"]) == set(common or own)
    said = ", and another run has: compared is what every run has."
    assert [note.removesuffix(said) for note in compared.fairness.notes if note.endswith(said)] == notes
    if common:
        assert metrics.row(compared.metrics, "compute_ns", "run 1")["change_pct"] == 0


def test_jobs_of_other_sizes_keep_their_ranks():
    sides = [side("four", capture(uneven(range(4), 4))), side("two", capture(uneven(range(2), 2)))]
    assert with_same_ranks(sides, lambda *_: pytest.fail("read again")) == sides


def test_in_python_too():
    runs = [TraceSet(label, tuple(uneven(ranks, 2))) for label, ranks in (("both", (0, 1)), ("one", (0,)))]
    compared = compare_in_python(*runs)
    assert [set(one.first.tables["ranks"]["rank"]) for one in compared.sides] == [{0}, {0}]
