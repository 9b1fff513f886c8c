"""Calls that wait for the GPU, of which a rank makes more than its peers."""

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import cadences
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.lengths import more_calls
from traceanalyzer.analyses.replay.replay import gain_of


def test_a_host_as_its_peers_makes_as_many_blocking_calls_as_they_do():
    """A batch of 20 tensors, which its peer has in one: 19 copies and 19 waits for them are more than there."""
    _, results = analysed(cadences.of_small_tensors(2, 3, (Fault("packed", 0, (1,)),), tensors=20), "replay")
    replay = results["replay"]
    nodes = replay.engine.job.nodes
    segments = nodes[0].piece.segments
    more = segments.loc[more_calls(nodes, 0, [1])]
    assert more.groupby(["step", "call"]).size().unique().tolist() == [19]
    assert not more_calls(nodes, 1, [0])
    gain = gain_of(replay, *(Change(part, "peers", frozenset({0})) for part in ("host", "copy")))
    assert gain.gain_ns == pytest.approx(856_000, rel=0.05)  # what the job of packed batches takes less
