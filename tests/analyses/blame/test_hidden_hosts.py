"""Hosts that are late behind a wait for others: told with those that are seen to be late, or not at all."""

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.case import MS
from tests.simulator.faults import Fault
from tests.simulator.grid_jobs import replicated_pipeline
from tests.simulator.jobs.moving import prepared_on_hosts
from tests.simulator.jobs.sharded import by_hooks
from tests.simulator.noise import Noise, like_hosts
from tests.simulator.workloads import ddp


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


def test_hosts_that_are_slow_alike_are_told_together_though_each_gpu_idles_for_a_part():
    slower = Fault("pace", 0, (1, 2, 6), None, 1.4)
    job = by_hooks(8, 3, (slower,), modules=16, noise=Noise(904, host=0.2))
    (row,) = analysed(job, "episodes")[1]["episodes"].rows()
    assert (row["ranks"], row["cause"]) == ("1,2,6", "host")


def test_hosts_that_are_slow_alike_in_nothing_in_particular_are_told_together():
    """In some steps a name fits (mixup, aten::mul), each GPU idles where its own host is the last, and all need as long."""
    job = prepared_on_hosts(8, 5, (Fault("pool", 8 * MS, (4, 5, 6, 7)),), noise=like_hosts(1509))
    (row,) = analysed(job, "episodes")[1]["episodes"].rows()
    assert (row["ranks"], row["numbers"], row["name"]) == ("4,5,6,7", "0,1,2,3,4", None)
    assert row["gain_ns"] == pytest.approx(5.76 * MS, rel=0.05)  # what the job without the fault gains


def test_a_loader_is_no_part_of_another_hosts_lateness():
    job = ddp(8, 4, (Fault("data", 9 * MS, (2,)), Fault("gc", 6 * MS, (7,), (2,))))
    rows = analysed(job, "episodes")[1]["episodes"].rows()
    assert {(row["ranks"], row["cause"]) for row in rows} == {("2", "data"), ("7", "host")}
