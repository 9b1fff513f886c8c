"""Launch delays, the launch queue and its series, short kernels, synchronising calls."""

import numpy as np
import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses import run

# Three kernels; the second and third wait in the queue while the first one runs.
OPS = [("gemm", 10, 50, 1), ("gemm", 50, 70, 2), ("gemm", 70, 100, 3)]
CALLS = [("cudaLaunchKernel", 0, 5), ("cudaLaunchKernel", 10, 20), ("cudaLaunchKernel", 20, 40)]


def one(name, trace):
    (row,) = run([trace], [name])[name].rows()
    return row


def test_figures_of_a_rank():
    row = one("launches", host_trace(OPS, CALLS))
    # Second waits 20 to 50, third 40 to 70: 60 of the window's 90, in which one waits 20..40 and 50..70, two 40..50.
    assert row["empty_queue_ns"] == 40
    assert row["host_bound_pct"] == pytest.approx(100 * 40 / 90)
    assert row["queue_mean"] == pytest.approx(60 / 90)
    assert (row["queue_max"], row["queue_median"]) == (2, 1)
    assert row["delay_median_ns"] == 40


@pytest.mark.parametrize(("durations", "under_10"), [([4_999, 5_000, 9_999, 10_000], 3), ([20_000], 0)])
def test_short_kernels(durations, under_10):
    starts = np.cumsum([0, *durations])
    row = one("launches", host_trace([("gemm", a, a + n) for a, n in zip(starts, durations, strict=False)], []))
    assert (row["kernels"], row["kernels_under_10us"]) == (len(durations), under_10)
    assert row["operations_without_launch"] == len(durations)
    assert row["queue_max"] is row["delay_median_ns"] is row["host_bound_pct"] is None
