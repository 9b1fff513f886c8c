"""Exposed communication splits exactly, on hand-made traces and on every sample."""

import pytest

from tests import once
from tests.samples import OF_EACH_KIND
from tests.simulator import Capture, scenarios
from tests.simulator.analysed import analysed

PARTS = ["exposed_transfer_ns", "exposed_wait_ns", "exposed_unmatched_ns"]


def check(results):
    frame = results["exposed_comm"].to_frame()
    assert (frame[PARTS].sum(axis=1) == frame["exposed_comm_ns"]).all()
    assert (frame[PARTS] >= 0).all().all()
    whole = frame[frame["step"].isna()].set_index("rank")
    waits = results["waits"].to_frame()
    lengths = (waits["end_ns"] - waits["start_ns"]).groupby(waits["rank"]).sum()
    assert lengths.reindex(whole.index, fill_value=0).tolist() == whole["exposed_wait_ns"].tolist()
    breakdown = results["breakdown"].to_frame().set_index("rank")
    assert breakdown["exposed_comm_ns"].to_dict() == whole["exposed_comm_ns"].to_dict()


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_parts_add_up_on_every_sample(name):
    check(once.results(name, ["exposed_comm", "waits", "breakdown"]))


@pytest.mark.parametrize(
    "job",
    [pytest.param(scenarios.hsdp(slow_compute_ns={1: 200_000}), marks=pytest.mark.thorough), scenarios.pipeline(3)],
    ids=["hsdp", "pp"],
)
def test_parts_add_up_on_simulated_jobs(job):
    check(analysed(job, "exposed_comm", "waits", "breakdown", how=Capture(dropped={1: (2,)}))[1])
