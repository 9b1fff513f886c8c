"""Clocks of hosts that only messages of several peers in one call tie together."""

import pytest

from tests.simulator.analysed import analysed, saved_ns
from tests.simulator.capture import Capture
from tests.simulator.case import on_nodes
from tests.simulator.faults import Fault
from tests.simulator.jobs import unlike_ranks
from tests.simulator.noise import like_hosts

MS = 1_000_000


@pytest.mark.parametrize("offset_ms", [(0, 0), (7, -2)])
def test_no_message_ends_before_both_calls_have_begun(offset_ms):
    """Workers of two hosts send to the servers of a third one; those of the second host are slower, and come last."""
    own, servers = offset_ms
    how = Capture(offset_ns={**dict.fromkeys((3, 4, 5), own * MS), **dict.fromkeys((6, 7), servers * MS)})
    job = on_nodes(unlike_ranks.served, 3)(
        workers=6, steps=3, faults=(Fault("throttle", 0, (3, 4, 5), None, 1.35),), noise=like_hosts(2124)
    )
    results = analysed(job, "clocks", "episodes", "replay", how=how)[1]
    clocks = results["clocks"].to_frame().set_index("rank")
    assert (clocks["uncertainty_ns"] < 100_000).all()
    said = clocks["offset_ns"] - clocks["offset_ns"][0]
    for rank, true_ms in ((1, 0), (4, own), (7, servers)):
        assert said[rank] == pytest.approx(true_ms * MS, abs=100_000)
    (found,) = results["episodes"].table.to_dict("records")
    assert found["ranks"] == (3, 4, 5)
    assert saved_ns(results["replay"], *found["changes"]) == pytest.approx(1_880_000, rel=0.05)
