import re

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
