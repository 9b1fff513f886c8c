"""Steps of captures without GPU work, and what their threads do."""

import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.analyses.host.cpu_time import mean_steps_ns, per_step_ns
from traceanalyzer.report.words import how_long

MS = 1_000_000

ASKED = ("cpu_steps", "steps", "host_work")

BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


def rank(number, *steps, ops=()):
    """A rank on its CPU: (number of a step, ms), the first 4 ms in `forward`, autograd's thread at work for 2 ms."""
    ranges, host_ops, begin = [], [], 0
    for step, ms in steps:
        end = begin + ms * MS
        ranges += [(f"ProfilerStep#{step}", begin, end), ("forward", begin, begin + 4 * MS)]
        host_ops.append((BACKWARD, begin + 4 * MS, begin + 6 * MS, 2))
        begin = end
    return host_trace(ops, ranges=ranges, host_ops=host_ops, rank=number)


def cells(result, *names):
    return [tuple(row[name] for name in names) for row in result.rows()]


@pytest.fixture(scope="module")
def made():
    return run([rank(0, (1, 10), (2, 10)), rank(1, (1, 10), (2, 30), (3, 80))], ASKED)


def test_a_step_is_the_mean_of_the_ranks_that_have_it(made):
    shown = cells(made["cpu_steps"], "step", "ranks", "mean_ns", "least_ns", "most_ns", "times_median")
    assert shown == [
        (1, 2, 10 * MS, 10 * MS, 10 * MS, 0.5),
        (2, 2, 20 * MS, 10 * MS, 30 * MS, 1.0),
        (3, 1, 80 * MS, 80 * MS, 80 * MS, 4.0),
    ]


def test_work_of_a_mean_step_is_the_mean_over_the_ranks_and_autograds_is_beside_it(made):
    step_ns = mean_steps_ns(made["steps"])
    assert step_ns.tolist() == [10 * MS, 40 * MS]
    main, autograd = (per_step_ns(made["host_work"], role, step_ns.index) for role in ("main", "autograd"))
    assert main.to_dict("list") == {"forward": [4 * MS, 4 * MS]}
    assert autograd.to_dict("list") == {BACKWARD: [2 * MS, 2 * MS]}
    assert how_long(made).endswith(
        ": main thread 16% in forward, 84% unrecorded; autograd thread 8%. Step 3 is the longest: 80\u202fms."
    )
