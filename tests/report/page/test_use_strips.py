import re

import pytest

from tests import once
from tests.builders import rank_trace
from traceanalyzer.analyses import run
from traceanalyzer.report.page.charts import HEIGHT, strips


def area(path):
    return sum(float(height) for height in re.findall(r"h1v([\d.]+)h-1z", path))


def test_areas_are_the_kinds_shares_of_the_window():
    ops = [("compute", 0, 300), ("comm", 200, 400), ("copy", 500, 600)]
    results = run([rank_trace(ops), rank_trace([("comm", 0, 600)], rank=1)], ["gpu_utilization", "breakdown"])
    first, second = strips(results["gpu_utilization"], results["breakdown"], [0, 1, 7])
    assert (first.rank, first.bins, first.idle, first.window) == (0, 60, "100\u202fns", "600\u202fns")
    shares = {kind: area(path) / (60 * HEIGHT) for kind, path in first.paths}
    assert {kind: round(share, 3) for kind, share in shares.items()} == {
        "compute": 0.5,
        "comm": 0.167,
        "copy": 0.167,
        "unknown": 0,
    }
    assert dict(second.paths)["compute"] == ""


def test_columns_stand_on_each_other():
    results = run([rank_trace([("compute", 0, 50), ("comm", 50, 100)])], ["gpu_utilization", "breakdown"])
    (strip,) = strips(results["gpu_utilization"], results["breakdown"], [0])
    assert dict(strip.paths)["compute"].startswith("M0 0.0h1v100.0h-1z")
    assert dict(strip.paths)["comm"].endswith("M59 0.0h1v100.0h-1z")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("ddp", marks=pytest.mark.thorough),
        pytest.param("nsys_naive", marks=pytest.mark.thorough),
        "nsys_cuda_graph_node",
    ],
)
def test_a_strip_is_of_the_window_that_its_words_are_of(name):
    made = once.results(name, ["gpu_utilization", "breakdown"])
    drawn = made["gpu_utilization"].to_frame().groupby("rank")[["bin_ns", "idle_ns"]].sum()
    told = made["breakdown"].to_frame().set_index("rank")[["window_ns", "idle_ns"]]
    assert drawn.to_numpy().tolist() == told.to_numpy().tolist()
