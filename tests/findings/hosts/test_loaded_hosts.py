"""Hosts that need a whole step, most of it in the data loader: who decides its length."""

import inspect

import pytest

from tests.simulator import workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from traceanalyzer.findings.hosts.launch_bound import host_bound

MS = 1_000_000
BOTH = (0, 1)


@pytest.mark.parametrize(
    ("host_ns", "data_ns", "decides"),
    [(500_000, 8 * MS, "the data loader"), (500_000, MS, "hosts"), (150_000, 5 * MS, None)],
    ids=["the loader", "hosts", "nothing but the loader"],
)
def test_who_decides_how_long_a_step_is(host_ns, data_ns, decides):
    job = workloads.ddp(2, 4, (Fault("data", data_ns, BOTH),), host_ns=host_ns, is_synced=False)
    asked = [name for name, each in inspect.signature(host_bound).parameters.items() if each.default is each.empty]
    found = host_bound(**{name: own for name, own in analysed(job, *asked)[1].items() if name in asked})
    assert [f"{decides} would still decide its length." in each.title for each in found] == [True] * (
        decides is not None
    )
