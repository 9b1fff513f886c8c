"""The rule about work of the CPU alone."""

import pytest

from tests.host_builders import host_trace
from tests.simulator.analysed import analysed
from tests.simulator.case import Case, Truth
from tests.simulator.faults import Fault
from tests.simulator.jobs import host_pauses
from tests.simulator.jobs.first_times import set_up
from tests.simulator.jobs.reads import logged
from tests.simulator.scoreboard import report_of
from traceanalyzer.analyses import combine, reduce_rank
from traceanalyzer.findings.hosts import cpu_work as hosts_cpu_work
from traceanalyzer.findings.hosts.cpu_work import cpu_work

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


def test_a_collective_on_the_cpu_is_work_that_starts_nothing():
    (title,) = found(gloo=[("gloo:all_gather", 40, 80)])
    assert title.startswith("Rank 0's CPU is in gloo:all_gather for 40 ms a step and starts no GPU work there: ")


def test_what_a_collective_gains_is_of_all_its_ranks(monkeypatch):
    """Rank 1 is in it as long, beside its product but for 6 ms: taken from rank 0's host alone it gains nothing."""
    asked = []
    monkeypatch.setattr(hosts_cpu_work, "gains_of", lambda _, changes: asked.extend(changes))
    titles = found(gloo=[("gloo:all_gather", 40, 80)], ranks=2, of_rank={1: [("gloo:all_gather", 6, 36)]})
    assert len(titles) == 1
    assert [change.ranks for (change, _) in asked] == [frozenset((0, 1))]


@pytest.mark.parametrize(
    ("since", "said"),
    [
        ((40, 40, 75), "the same on ranks 0 and 1; rank 2 comes last (5 ms in it)."),
        pytest.param((40, 40, 40), "the same on all 3 ranks.", marks=pytest.mark.thorough),
        ((40, 58, 59), "the same on all 3 ranks."),  # the last one is in it for half as long
    ],
)
def test_who_comes_last_to_a_collective_on_the_cpu(since, said):
    of_rank = {rank: [("gloo:barrier", start, 80)] for rank, start in enumerate(since)}
    (title,) = found(ranks=3, of_rank=of_rank)
    assert title.endswith(said)


def test_waits_in_a_collective_on_the_cpu_are_no_need_of_the_host():
    """Steps of 100 ms in which one runs for 40; an operator in the middle shows that the host waits only after it."""
    steps = [("ProfilerStep#0", 0, 100 * MS), ("gloo:barrier", 40 * MS, 80 * MS, 9)]
    calls = [("cudaLaunchKernel", MS, 2 * MS)]
    trace = host_trace(
        [("gemm", 5 * MS, 30 * MS, 1)], calls, ranges=steps, host_ops=[("aten::add", 60 * MS, 70 * MS, 1)]
    )
    results = combine({0: reduce_rank(trace, ("step_needs",))}, ("step_needs",))
    assert results["step_needs"].to_frame()["needed_host_ns"].tolist() == [90 * MS]


def test_what_another_rank_hides_is_not_advised():
    """Rank 1 augments for longer before the step than rank 0 logs after it: without the log no step is shorter."""
    faults = (Fault("host", 12 * MS, (1,)), Fault("gc", 7 * MS, (0,)))
    _, results = analysed(host_pauses.around(faults=faults), *NAMES)
    titles = [finding.title for finding in cpu_work(*(results[name] for name in NAMES))]
    assert len(titles) == 1
    assert titles[0].startswith("Rank 1's CPU is in augment for 12.0 ms a step")


def test_work_before_the_first_operation_of_the_gpu_counts_like_that_of_later_steps():
    """Each step begins with 50 ns of the host alone."""
    steps = [(f"ProfilerStep#{i}", 100 * i, 100 * i + 100) for i in range(3)]
    own = [("collect", 100 * i, 100 * i + 50) for i in range(3)]
    calls = [("cudaLaunchKernel", 100 * i + 51, 100 * i + 52) for i in range(3)]
    ops = [("gemm", 100 * i + 60, 100 * i + 99, i + 1) for i in range(3)]
    results = combine({0: reduce_rank(host_trace(ops, calls, ranges=[*steps, *own]), NAMES)}, NAMES)
    (row,) = results["host_work"].to_frame().query("name == 'collect'").to_dict("records")
    assert (row["host_per_step_ns"], row["seen_ns"], row["idle_per_step_ns"], row["idle_pct"]) == (50, 100, 50, 100.0)


def test_what_lies_in_few_steps_is_said_of_these():
    """The loss is read and written in two of five steps: a mean step does not hold it."""
    _, results = analysed(logged(4, 6, every=3), *NAMES)
    (told,) = cpu_work(*(results[name] for name in NAMES))
    assert told.title.startswith("Mostly in steps 0 and 3 rank ")
    assert "of a mean step and starts no GPU work there" in told.title
    assert told.steps == (0, 3)


def test_of_a_warm_up_no_work_of_hosts_is_told():
    case = Case("", lambda _: set_up(4, 4), (), Truth())
    assert [finding.rule for finding in report_of(case).findings] == ["warm_up"]
