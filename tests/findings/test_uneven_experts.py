"""Experts that get more tokens than others."""

from tests.findings.of_job import said
from tests.simulator.jobs import large
from tests.simulator.noise import like_hosts


def test_busy_experts_move_from_rank_to_rank():
    (found,) = said(large.across_nodes(moves=0.6, noise=like_hosts(3011)), "uneven_experts")
    assert found.headline == "Uneven experts: the busiest rank gets 1.3× the mean rank's tokens."
    assert found.why.startswith("96 of 96 dispatches are uneven; the busiest rank changes")
    assert found.fix.startswith("Balance the router (auxiliary loss, capacity factor)")
    assert found.what_if == "analyze-traces what-if FOLDER --compute even"
    assert found.leads
    assert not found.ranks


def test_even_loads_are_nothing():
    assert not said(large.across_nodes(), "uneven_experts")
