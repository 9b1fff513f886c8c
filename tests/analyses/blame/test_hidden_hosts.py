"""Hosts that are late behind a wait for others: told with those that are seen to be late, or not at all."""

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.case import MS
from tests.simulator.faults import Fault
from tests.simulator.grid_jobs import replicated_pipeline


def late_hosts(*ranks):
    job = replicated_pipeline(4, (Fault("host", 12 * MS, ranks),), 1)
    return [(row["ranks"], row["cause"]) for row in analysed(job, "episodes")[1]["episodes"].rows()]


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ((0, 1, 2), "0,1,2"),
        pytest.param((5,), "5", marks=pytest.mark.thorough),
    ],
)
def test_a_host_as_late_behind_a_wait_is_told_with_the_others(ranks, told):
    assert late_hosts(*ranks) == [(told, "host")]


@pytest.mark.thorough
def test_hosts_that_all_need_as_long_are_nobodys_fault():
    assert late_hosts(0, 1, 2, 3, 4, 5) == []
