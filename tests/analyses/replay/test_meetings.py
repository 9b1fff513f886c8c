"""Hosts that wait for each other in collectives of the CPU: what a late one costs, with the truth of a second run."""

import pytest

from tests.simulator import Capture
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import host_pauses
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.replay import Replay, gain_of

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
    late, mended = _replay(**options), _replay((), **options)
    gain = gain_of(late, Change("host", "peers", frozenset({1})))
    assert gain is not None
    assert mended.engine is not None
    assert gain.error_ns == 0
    assert gain.after_ns == pytest.approx(mended.engine.before_ns, rel=0.01)
    other = gain_of(late, Change("host", "peers", frozenset({3})))
    assert other is not None
    assert other.gain_ns < 0.01 * other.before_ns


def test_only_hosts_of_one_group_meet():
    late = _replay(groups=2)
    assert late.engine is not None
    met = {rank: set(nodes.piece.meetings["instance"]) for rank, nodes in late.engine.job.nodes.items()}
    assert met[0] == met[1] != met[2] == met[3]
    assert not met[0] & met[2]


def test_of_messages_nobody_knows_the_partner():
    late = _replay(name="recv")
    assert late.engine is not None
    met = [number for nodes in late.engine.job.nodes.values() for number in nodes.piece.meetings["instance"]]
    assert len(set(met)) == len(met)


def test_hosts_that_wait_for_one_without_a_file_wait_as_long_as_recorded():
    late = _replay(groups=2, how=Capture(missing=(1,)))
    gain = gain_of(late, Change("host", 0.0))
    assert gain is not None
    assert gain.is_lower_bound
    assert gain.after_ns > 6_000_000
    shorter = gain_of(late, Change("host", 0.0), Change("collective", 0.0, name="gloo:barrier"))
    assert shorter is not None
    assert shorter.after_ns < 3_000_000


def test_without_waits_nobody_meets():
    late = _replay()
    assert late.engine is not None
    changes = (Change("waits", 0.0),)
    times = late.engine.job.replay(late.engine.lengths(*changes))[:, 0]
    windows = late.engine.windows
    of_end = windows.table["rank"].to_numpy()[windows.window_of_end]
    quick, slow = (times[windows.ends[of_end == rank]].max() for rank in (0, 1))
    assert slow - quick > 10_000_000


def test_episodes_name_who_comes_last_and_where_the_others_wait():
    job = host_pauses.meeting_hosts(4, 4, LATE)
    (row,) = analysed(job, "episodes")[1]["episodes"].rows()
    assert (row["ranks"], row["cause"], row["collective"]) == ("1", "host", "gloo:barrier")
    assert "log_metrics" in row["name"]
