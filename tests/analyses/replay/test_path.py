"""The critical path tiles the window and goes through what made the job slow."""

import pytest

from tests import once
from tests.samples import RUNS
from tests.simulator import scenarios
from tests.simulator.analysed import analysed


@pytest.mark.parametrize("run_name", RUNS)
def test_it_tiles_the_window(run_name):
    results = once.results(run_name, ["path_stretches", "critical_path", "replay"])
    path = results["path_stretches"].to_frame()
    assert (path["start_ns"].to_numpy()[1:] == path["end_ns"].to_numpy()[:-1]).all()
    assert (path["end_ns"] > path["start_ns"]).all()
    assert results["critical_path"].to_frame()["path_ns"].sum() == path["end_ns"].iloc[-1] - path["start_ns"].iloc[0]
    steps = max(path["step"].nunique(), 1)
    window = path["end_ns"].iloc[-1] - path["start_ns"].iloc[0]
    before = results["replay"].engine.before_ns
    assert any(window == pytest.approx(before * count, abs=count) for count in range(1, steps + 1))


@pytest.mark.parametrize(
    ("job", "rank", "category", "name"),
    [
        pytest.param(
            scenarios.ddp(4, slow_compute_ns={2: 900_000}), 2, "compute", "extra_gemm", marks=pytest.mark.thorough
        ),
        (scenarios.ddp(4, slow_host_ns={1: 2_000_000}), 1, "host", None),
        (scenarios.fed(4, slow_data_ns={3: 20_000_000}), 3, "data", None),
        pytest.param(scenarios.hsdp(slow_compute_ns={5: 900_000}), 5, "compute", None, marks=pytest.mark.thorough),
    ],
    ids=["compute", "host", "data", "hybrid sharding"],
)
def test_it_goes_through_the_slow_rank(job, rank, category, name):
    _, results = analysed(job, "critical_path", "path_stretches")
    table = results["critical_path"].to_frame()
    longest = table.groupby(["rank", "category"])["path_ns"].sum().idxmax()
    assert longest == (rank, category)
    path = results["path_stretches"].to_frame()
    assert name is None or name in set(path["name"])
