"""Hosts that wait for each other in collectives of the CPU: what a late one costs, with the truth of a second run."""

import pytest

from tests.simulator.analysed import analysed, saved_ns, steps_of
from tests.simulator.faults import Fault
from tests.simulator.jobs import host_pauses
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.replay import Replay

LATE = (Fault("host", 6_000_000, (1,)),)


def _replay(faults=LATE, how=None, **options) -> Replay:
    found = analysed(host_pauses.meeting_hosts(4, 4, faults, **options), "replay", how=how)[1]["replay"]
    assert isinstance(found, Replay)
    return found


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="a barrier", marks=pytest.mark.thorough),
        pytest.param({"groups": 2}, id="each with one other"),
        pytest.param({"name": "all_gather", "handed": 2_000_000}, id="waited for after other work"),
    ],
)
def test_a_host_that_others_wait_for_on_the_cpu_gains_what_a_run_without_it_shows(options):
    late, fixed = _replay(**options), _replay((), **options)
    before_ns, after_ns = steps_of(late, Change("cpu", "peers", frozenset({1})))
    assert late.engine.error_ns == 0
    assert after_ns == pytest.approx(fixed.engine.before_ns, rel=0.01)
    assert saved_ns(late, Change("cpu", "peers", frozenset({3}))) < 0.01 * before_ns
