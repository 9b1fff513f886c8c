"""Copies beside waits: a rank's own work, or what it does while it waits for one whose bus is slower."""

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs.ambient import parameters_from_hosts
from traceanalyzer.analyses.blame import excess
from traceanalyzer.analyses.blame.excess import cells, with_excess, with_excess_of_copies
from traceanalyzer.analyses.replay.gains import Gain

MS = 1_000_000


def late_of(*faults):
    _, results = analysed(parameters_from_hosts(3, 4, faults), "step_needs", "replay")
    needs = results["step_needs"].to_frame()
    return needs, results["replay"], with_excess_of_copies(needs, results["replay"])


def by_copies(late):
    found = cells(late)
    return sorted(found.loc[found["part"] == "exposed_copy_ns", "rank"].unique())


def test_a_rank_whose_copies_take_longer_is_late_though_others_copy_while_they_wait():
    needs, _, late = late_of(Fault("bus", 4 * MS, (1,)))
    assert by_copies(with_excess(needs)) == []
    assert by_copies(late) == [1]


@pytest.mark.parametrize(
    ("gain_ns", "step_ms", "expected"),
    [(200_000, 12, []), (400_000, 12, []), (900_000, 12, [1]), (900_000, 90, []), (None, 12, [])],
    ids=["a little", "less", "most", "of a long step", "none"],
)
def test_only_where_the_job_gains_what_it_copies_longer(monkeypatch, gain_ns, step_ms, expected):
    needs, replay, _ = late_of(Fault("bus", 4 * MS, (1,)))
    gain = None if gain_ns is None else Gain(step_ms * MS, step_ms * MS - gain_ns, 0)
    monkeypatch.setattr(excess, "gain_of", lambda *_: gain)
    assert by_copies(with_excess_of_copies(needs, replay)) == expected


def test_of_a_rank_that_computes_longer_copies_are_no_part():
    needs, _, late = late_of(Fault("compute", 3 * MS, (2,)))
    assert by_copies(late) == by_copies(with_excess(needs)) == []
