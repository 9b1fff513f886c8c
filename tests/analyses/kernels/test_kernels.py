"""The kernel table."""

from tests.builders import rank_trace
from traceanalyzer.analyses import run


def test_statistics_of_a_name():
    trace = rank_trace([("compute", 0, 2), ("compute", 10, 14), ("compute", 20, 29), ("copy", 30, 35)])
    found = run([trace], ["kernels"])["kernels"].rows()
    gemm = found[0]
    assert (gemm["name"], gemm["calls"], gemm["total_ns"], gemm["mean_ns"]) == ("gemm", 3, 15, 5.0)
    assert (gemm["median_ns"], gemm["min_ns"], gemm["max_ns"], gemm["streams"]) == (4, 2, 9, "7")
    assert [row["share_pct"] for row in found] == [75.0, 25.0]


def test_overlapping_kernels_count_in_full():
    trace = rank_trace([("compute", 0, 10), ("compute", 0, 10), ("comm", 0, 20)])
    found = run([trace], ["kernels"])["kernels"].rows()
    assert [(row["kind"], row["total_ns"]) for row in found] == [("compute", 20), ("comm", 20)]
