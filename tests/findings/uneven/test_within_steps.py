"""Ranks that wait for each other within a step, over which none needs more."""

from traceanalyzer.findings.uneven.balance import waits_within_steps

from tests.findings.needed import needed_by
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs.chances import lopsided

MS = 1_000_000
MORE, LESS = (Fault(what, 2 * MS, (1,)) for what in ("more", "less"))


def said(*faults):
    names = needed_by(waits_within_steps)
    _, results = analysed(lopsided(4, 3, faults, layers=4), *names)
    return waits_within_steps(**results)


def test_a_rank_that_is_late_in_one_half_and_early_in_the_other_is_waited_for_and_waits():
    (found,) = said(MORE, LESS)
    assert "within a step now rank 1 comes last (for most of it), now another" in found.title
    assert (found.ranks, found.named) == ((), (1,))
