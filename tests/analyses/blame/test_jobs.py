"""Which ranks are of one job, and what their transfers are called."""

import pandas as pd
import pytest

from tests.builders import rank_trace
from tests.simulator import Capture
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs.serving import prefill_apart
from traceanalyzer.analyses import run
from traceanalyzer.analyses.blame import episodes
from traceanalyzer.analyses.communication.jobs import jobs_of, met_ranks


def members(*calls):
    """Calls as (rank, group's ranks, instance)."""
    table = pd.DataFrame(calls, columns=["rank", "group_ranks", "instance"]).astype({"instance": "Int64"})
    return table.assign(call=range(len(table)), step=0, collective="all_gather", transfer_ns=100)


@pytest.mark.parametrize(
    ("calls", "jobs"),
    [
        ([(0, "0,1", 0), (1, "0,1", 0), (2, "2,3", 1), (3, "2,3", 1)], [0, 0, 2, 2]),
        # through a rank that has no trace
        ([(0, "0,9", None), (1, "1,9", None), (2, "2", None), (3, "3", None)], [0, 0, 2, 3]),
        # through a group that only some use
        ([(0, "0,1", 0), (1, "1,2", 1), (2, "2,3", 2), (3, "2,3", 2)], [0, 0, 0, 0]),
        # a message whose group the trace does not tell
        ([(0, None, 0), (1, None, 0), (2, "2,3", 1), (3, "2,3", 1)], [0, 0, 2, 2]),
        # a collective whose group the trace does not tell
        ([(0, None, 0), (1, None, 0), (2, None, 0), (3, "3", None)], [0, 0, 0, 3]),
        # who takes part is not known
        ([(0, None, None), (1, "0,1", 0), (2, "2,3", 1), (3, "2,3", 1)], [0, 0, 0, 0]),
    ],
    ids=["two", "a missing rank", "a chain", "a message", "a collective", "unknown"],
)
def test_ranks_that_communicate_are_one_job(calls, jobs):
    assert list(jobs_of(members(*calls), range(4)).values()) == jobs


def test_ranks_whose_hosts_meet_are_one_job():
    calls = members((0, "0", None), (1, "1", None), (2, "2", None), (3, "3", None))
    for own in (calls, calls.iloc[:0]):
        assert list(jobs_of(own, range(4), [(1, 3), (0,)]).values()) == [0, 1, 2, 1]


def test_who_is_met_is_told_by_calls_that_are_surely_answered():
    calls = members((0, "0,1", 0), (1, "0,1", 0), (2, "2,3", 1), (3, "2,3", 1), (4, None, None), (5, "5,9", 2))
    assert met_ranks(calls) == {0, 1, 2, 3}
    assert met_ranks(calls.assign(is_ambiguous=calls["instance"] == 1)) == {0, 1}
    assert met_ranks(calls, [(4, 5), (6,)]) == {0, 1, 2, 3, 4, 5}


def test_nobody_is_late_for_whom_nobody_is_known_to_wait():
    job = prefill_apart(2, 2, 4, (Fault("compute", 3_000_000, (3,)),))
    for how, late in ((Capture(), ["3"]), (Capture(arguments="none"), [])):
        assert analysed(job, "episodes", how=how)[1]["episodes"].table["ranks"].tolist() == late


def test_a_rank_that_communicates_with_nobody_is_held_against_nobody(monkeypatch):
    traces = [rank_trace([("compute", 5, 90 + 300 * rank, 1)], rank=rank, world_size=1) for rank in range(3)]
    monkeypatch.setattr(episodes, "jobs_of", lambda _members, ranks, _meeting: {int(rank): int(rank) for rank in ranks})
    monkeypatch.setattr(episodes, "with_excess_of_copies", lambda *_: pytest.fail("held against others"))
    assert len(run(traces, ["step_needs"])["step_needs"]) >= 3
    assert not len(run(traces, ["episodes"])["episodes"])
