"""Copies beside waits: a rank's own work, or what it does while it waits for one whose bus is slower."""

from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs.ambient import parameters_from_hosts
from traceanalyzer.analyses.blame.excess import cells, with_excess, with_excess_of_copies

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
