"""What recording takes the hosts is taken away where they bind, and only where its cost is known."""

import dataclasses

import pytest

from tests.host_builders import host_trace
from tests.simulator.analysed import saved_ns, steps_of
from traceanalyzer.analyses import run
from traceanalyzer.analyses.replay.changes import COST_NS, UNRECORDED, Change

MS, US = 1_000_000, 1_000
LAUNCHES, RECORDED = 5, 100


def launching(kernel_ns):
    """A host that launches a kernel every 2 ms, and has a hundred operators recorded before each launch."""
    begins = [number * 2 * MS for number in range(LAUNCHES)]
    ops = [("gemm", begin + 10 * US, begin + 10 * US + kernel_ns, number) for number, begin in enumerate(begins, 1)]
    calls = [("cudaLaunchKernel", begin, begin + 5 * US) for begin in begins]
    host_ops = [
        ("aten::view", begin + 15 * US * (1 + number), begin + 15 * US * (1 + number) + 9 * US)
        for begin in begins
        for number in range(RECORDED)
    ]
    return host_trace(ops, calls, host_ops=host_ops)


def replay_of(trace):
    return run([trace], ["replay"])["replay"]


@pytest.mark.parametrize("cost", [*COST_NS])
def test_a_job_that_its_host_binds_is_shorter_by_what_was_recorded(cost):
    gain_ns = saved_ns(replay_of(launching(50 * US)), Change("profiler", cost))
    # Of the calls only those between the first launch and the last.
    assert gain_ns == (LAUNCHES - 1) * (RECORDED + 1) * COST_NS[cost]


def test_a_job_that_its_gpu_binds_is_as_long():
    replay = replay_of(launching(1_990 * US))
    before, after = replay.engine.steps([(UNRECORDED,), (Change("cpu"), UNRECORDED)]).mean(axis=0)
    assert before - after < 20 * US, "the GPU works all the time without the profiler"
    _, longest, shortest = replay.engine.steps(replay.engine.costs).mean(axis=0)
    assert longest - shortest < 20 * US


def test_hosts_that_take_no_time_are_not_shorter_without_the_profiler():
    replay = replay_of(launching(50 * US))
    assert steps_of(replay, Change("cpu"))[1] == steps_of(replay, Change("cpu"), UNRECORDED)[1]


def test_the_overhead_is_what_makes_the_known_step():
    estimated = replay_of(launching(50 * US))
    step_ns = round(steps_of(estimated, Change("profiler", "most"))[1]) - 500 * US
    (known,) = run([launching(50 * US)], ["replay"], unprofiled_step_ns=step_ns).values()
    likely, *ends = known.engine.steps(known.engine.costs).mean(axis=0)
    assert abs(likely - step_ns) < 10 * US
    assert min(ends, default=likely) <= likely <= max(ends, default=likely)
    assert known.note == ""
    assert len(estimated.engine.costs) == 3


def test_a_step_that_no_overhead_explains_is_not_used():
    (longer,) = run([launching(50 * US)], ["replay"], unprofiled_step_ns=12 * MS).values()
    assert "is not used" in longer.note
    assert len(longer.engine.costs) == 3


def test_a_step_that_tells_nothing_of_the_overhead_leaves_the_estimate():
    step_ns = replay_of(launching(1_990 * US)).engine.before_ns
    (bound,) = run([launching(1_990 * US)], ["replay"], unprofiled_step_ns=step_ns).values()
    assert bound.note == ""
    assert len(bound.engine.costs) == 3


def test_what_another_profiler_costs_is_known_only_from_the_step_without_it():
    trace = launching(50 * US)
    other = dataclasses.replace(trace, meta=dataclasses.replace(trace.meta, format="nsys_sqlite"))
    estimated = replay_of(other).engine
    assert estimated.costs == ((),)
    step_ns = estimated.before_ns - 200 * US
    (known,) = run([other], ["replay"], unprofiled_step_ns=step_ns).values()
    assert abs(known.engine.steps(known.engine.costs).mean(axis=0)[0] - step_ns) < 10 * US
