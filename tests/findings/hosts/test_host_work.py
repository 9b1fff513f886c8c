"""The rule about work of the CPU alone."""

import pytest
from traceanalyzer.findings.hosts.cpu_work import cpu_work

from tests.host_builders import host_trace
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import host_pauses
from traceanalyzer.analyses import combine, reduce_rank

NAMES = ("headline", "steps", "host_work", "step_needs", "episodes", "places", "replay")


MS = 1_000_000


def found(*ranges, ranks=1, gloo=(), of_rank=None):
    """Findings where each of three steps of 100 ms has a product in its first 30 and these ranges."""
    begins = [100 * MS * step for step in range(3)]
    steps = [(f"ProfilerStep#{place}", begin, begin + 100 * MS) for place, begin in enumerate(begins)]
    own = [(name, begin + start * MS, begin + end * MS) for name, start, end in ranges for begin in begins]
    others = {
        rank: [
            (name, begin + start * MS, begin + end * MS, 9)
            for name, start, end in (of_rank or {}).get(rank, gloo)
            for begin in begins
        ]
        for rank in range(ranks)
    }
    calls = [("cudaLaunchKernel", begin + 1 * MS, begin + 2 * MS) for begin in begins]
    ops = [("gemm", begin + 5 * MS, begin + 30 * MS, call) for call, begin in enumerate(begins, 1)]
    parts = {
        rank: reduce_rank(host_trace(ops, calls, ranges=[*steps, *own, *others[rank]], rank=rank), NAMES)
        for rank in range(ranks)
    }
    results = combine(parts, NAMES)
    return [finding.title for finding in cpu_work(*(results[name] for name in NAMES))]


@pytest.mark.parametrize(
    ("ranges", "ranks", "said"),
    [
        ([("Optimizer.step", 40, 90)], 1,
         "starts no GPU work there: the GPU idles 50 ms of it, 50 % of a step."),
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
    assert not said or titles[0].startswith("Rank 0's CPU is in Optimizer.step for 50 ms a step and ")
    assert not said or titles[0].endswith(said)


def test_what_another_rank_hides_is_not_advised():
    """Rank 1 augments for longer before the step than rank 0 logs after it: without the log no step is shorter."""
    faults = (Fault("host", 12 * MS, (1,)), Fault("gc", 7 * MS, (0,)))
    _, results = analysed(host_pauses.around(faults=faults), *NAMES)
    titles = [finding.title for finding in cpu_work(*(results[name] for name in NAMES))]
    assert len(titles) == 1
    assert titles[0].startswith("Rank 1's CPU is in augment for 12.0 ms a step")
