"""On which stream steps begin."""

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import overlapping
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.replay import gain_of


def test_a_rank_that_computes_most_on_another_stream_begins_its_steps_where_the_others_do():
    """The next batch's rows are looked up for longer than this one's dense part takes: on rank 1 alone."""
    slow = (Fault("rows", 7_000_000, (1,)),)
    _, results = analysed(overlapping.tables_ahead(2, 4, slow), "replay")
    gain = gain_of(results["replay"], Change("compute", "peers", frozenset({1})))
    assert gain is not None
    assert gain.gain_ns == pytest.approx(5_498_000, rel=0.05)  # what the job without the fault takes less
