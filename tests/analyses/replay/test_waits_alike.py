"""Waits between streams that other steps and ranks show, or show not to be."""

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import inputs, overlapping
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.replay import gain_of


def test_a_copy_that_is_launched_before_a_wait_for_another_one_is_not_waited_for():
    """The next batch's; only rank 4, whose copies bind, shows that its kernels do not wait for that one."""
    slow = (Fault("pcie", 0, (4,), None, 2.0),)
    _, results = analysed(inputs.prefetched(faults=slow), "replay")
    gain = gain_of(results["replay"], Change("rank", "peers", frozenset({4})))
    assert gain is not None
    assert gain.gain_ns == pytest.approx(4_750_000, rel=0.05)  # what the job without the fault takes less


def test_a_collective_that_a_rank_never_waits_for_is_waited_for_by_none():
    """Scattered gradients, of which only ranks whose sums are not slow show that no kernel waits for them."""
    slow = (Fault("tp", 3_000_000, (2, 3)),)
    _, results = analysed(overlapping.in_shards_ahead(2, 2, 3, slow), "replay")
    gain = gain_of(results["replay"], Change("comm", "peers", frozenset({2, 3})))
    assert gain is not None
    assert gain.gain_ns == pytest.approx(2_900_000, rel=0.05)  # what the job without the fault takes less
