"""Launches that wait for their kernels."""

import pytest
from traceanalyzer.findings.hosts.launch_bound import blocking_launches

from tests.simulator import scenarios
from tests.simulator.analysed import analysed
from traceanalyzer.analyses.host.launches import Launches


@pytest.fixture(scope="module")
def results():
    return analysed(scenarios.ddp(3), "launches", "replay")[1]


def _with(launches, awaited):
    """The table as if so many of each rank's 100 longer kernels had ended with their calls."""
    return Launches(launches.table.assign(awaitable_kernels=100, awaited_kernels=awaited))


def test_a_rank_that_waits_at_every_launch_is_named(results):
    (found,) = blocking_launches(_with(results["launches"], [0, 100, 3]), results["replay"])
    assert found.title.startswith("On rank 1 launches wait for their kernels: 100 of 100 kernels of over 20 µs")
    assert found.ranks == (1,)
    assert not found.is_about_capture
    assert found.gain_ns is not None
    assert "CUDA_LAUNCH_BLOCKING" in found.recommendation


def test_where_all_do_the_capture_is_not_the_job(results):
    (found,) = blocking_launches(_with(results["launches"], [100, 99, 95]), results["replay"])
    assert found.title.startswith("On every rank launches wait for their kernels: 294 of 300")
    assert found.is_about_capture
    assert found.gain_ns is None
