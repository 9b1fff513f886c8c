"""The rule about work of the CPU alone."""

import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank
from traceanalyzer.findings.host_work import cpu_work

NAMES = ("headline", "steps", "host_work", "episodes", "places")


def found(*ranges, ranks=1, gloo=()):
    """Findings where each of three steps of 100 ns has a product in its first 30 and these ranges."""
    steps = [(f"ProfilerStep#{i}", 100 * i, 100 * i + 100) for i in range(3)]
    own = [(name, 100 * i + start, 100 * i + end) for name, start, end in ranges for i in range(3)]
    calls = [("cudaLaunchKernel", 100 * i + 1, 100 * i + 2) for i in range(3)]
    ops = [("gemm", 100 * i + 5, 100 * i + 30, i + 1) for i in range(3)]
    parts = {
        rank: reduce_rank(host_trace(ops, calls, ranges=[*steps, *own, *gloo], rank=rank), NAMES)
        for rank in range(ranks)
    }
    results = combine(parts, NAMES)
    return [finding.title for finding in cpu_work(*(results[name] for name in NAMES))]


@pytest.mark.parametrize(
    ("ranges", "ranks", "said"),
    [
        ([("Optimizer.step", 40, 90)], 1,
         "starts no GPU work there: the GPU idles 0.05 µs of it, 50 % of a step."),
        ([("Optimizer.step", 40, 90)], 3, "50 % of a step; the same on all 3 ranks."),
        ([("Optimizer.step", 40, 45)], 1, None),
        ([("Optimizer.step", 6, 29)], 1, None),  # beside the product: nothing idles
        ([("forward", 0, 90)], 1, None),  # it launches the product
        ([("enumerate(DataLoader)#_Iter.__next__", 40, 90)], 1, None),  # of that another rule speaks
    ],
)  # fmt: skip
def test_work_that_starts_nothing_while_the_gpu_idles(ranges, ranks, said):
    titles = found(*ranges, ranks=ranks)
    assert len(titles) == (said is not None)
    assert not said or titles[0].startswith("Rank 0's CPU is in Optimizer.step for 0.05 µs a step and ")
    assert not said or titles[0].endswith(said)


def test_a_collective_on_the_cpu_is_work_that_starts_nothing():
    gloo = [("gloo:all_gather", 100 * i + 40, 100 * i + 80, 9) for i in range(3)]
    (title,) = found(gloo=gloo)
    assert title.startswith("Rank 0's CPU is in gloo:all_gather for 0.04 µs a step and starts no GPU work there: ")


def test_work_before_the_first_operation_of_the_gpu_counts_like_that_of_later_steps():
    """Each step begins with 50 ns of the host alone: of the first one the GPU's idle time is not seen."""
    steps = [(f"ProfilerStep#{i}", 100 * i, 100 * i + 100) for i in range(3)]
    own = [("collect", 100 * i, 100 * i + 50) for i in range(3)]
    calls = [("cudaLaunchKernel", 100 * i + 51, 100 * i + 52) for i in range(3)]
    ops = [("gemm", 100 * i + 60, 100 * i + 99, i + 1) for i in range(3)]
    results = combine({0: reduce_rank(host_trace(ops, calls, ranges=[*steps, *own]), NAMES)}, NAMES)
    (row,) = results["host_work"].to_frame().query("name == 'collect'").to_dict("records")
    assert (row["host_per_step_ns"], row["seen_ns"], row["idle_per_step_ns"], row["idle_pct"]) == (50, 50, 50, 100.0)
