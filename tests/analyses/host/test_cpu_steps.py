"""Steps of captures without GPU work, and what their threads do."""

import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses import run

MS = 1_000_000

ASKED = ("cpu_steps", "cpu_step_parts")

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


def test_the_main_threads_parts_add_up_to_the_step_and_autograd_works_beside_it(made):
    shown = cells(made["cpu_step_parts"], "part", "name", "ranks", "mean_ns", "least_ns", "most_ns", "step_pct")
    assert shown == [
        ("step", None, 2, 25 * MS, 10 * MS, 40 * MS, 100.0),
        ("main", "forward", 2, 4 * MS, 4 * MS, 4 * MS, 16.0),
        ("unrecorded", None, 2, 21 * MS, 6 * MS, 36 * MS, 84.0),
        ("autograd", None, 2, 2 * MS, 2 * MS, 2 * MS, 8.0),
    ]
