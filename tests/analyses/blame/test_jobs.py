"""Which ranks are of one job, and what their transfers are called."""

import pandas as pd
import pytest

from traceanalyzer.analyses.communication.clocks import jobs_of


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
