"""Numbers of PyTorch's profiler that repeat, fall or interleave: every step is read, and what is odd is said."""

import pytest

from tests.host_builders import host_trace
from traceanalyzer.selection import before_pauses

RESUMED = "as where several profilers record one process, or a run is resumed: they are {} in order of time."


def recorded(ranges):
    """A rank with such steps (number, start, end), of which each launches a kernel at its start."""
    marks = [(f"ProfilerStep#{number}", start, end) for number, start, end in ranges]
    begins = [start + 2 for _, start, _ in ranges]
    ops = [("gemm", begin + 1, begin + 5, number) for number, begin in enumerate(begins, 1)]
    return host_trace(ops, [("cudaLaunchKernel", begin, begin + 1) for begin in begins], ranges=marks)


@pytest.mark.parametrize(
    ("ranges", "numbers", "followed", "said"),
    [
        ([(3, 0, 100), (4, 100, 200), (5, 200, 300)], [3, 4, 5], [3, 4, 5], None),
        # what the profiler does not record is numbered, too: after step 3 recording paused
        ([(3, 0, 100), (6, 300, 400), (7, 400, 500)], [3, 6, 7], [6, 7], None),
        ([(3, 0, 100), (3, 100, 200), (4, 200, 300)], [0, 1, 2], [0, 1, 2], "Step 3 is followed by step 3, "
         + RESUMED.format("counted from 0")),
        ([(9, 0, 100), (3, 110, 200), (4, 200, 300)], [9, 3, 4], [9, 3, 4], "Step 9 is followed by step 3, "
         + RESUMED.format("taken")),
        ([(9, 0, 100), (3, 151, 200), (4, 200, 300)], [9, 3, 4], [3, 4], "Step 9 is followed by step 3, "
         + RESUMED.format("taken")),
        ([(5, 0, 100), (4, 100, 200), (3, 200, 300)], [5, 4, 3], [5, 4, 3], "Step 5 is followed by step 4, "
         + RESUMED.format("taken")),
    ],
    ids=["rising", "paused", "repeated", "resumed at once", "resumed later", "falling"],
)  # fmt: skip
def test_steps_are_read_whatever_their_numbers(ranges, numbers, followed, said):
    trace = recorded(ranges)
    assert trace.steps["step"].tolist() == numbers
    assert trace.steps["step"][~before_pauses(trace.steps)].tolist() == followed
    assert trace.meta.notes == (() if said is None else (said,))


@pytest.mark.parametrize("first", [1, 3, 100])
def test_of_two_profilers_that_mark_each_step_one_is_taken(first):
    ranges = [(3 + i, 100_000 * i, 100_000 * i + 100_000) for i in range(4)]
    others = [(first + i, 100_000 * i + 1_500, 100_000 * i + 101_500) for i in range(3)]
    trace = recorded(sorted([*ranges, *others], key=lambda each: each[1]))
    assert trace.steps["step"].tolist() == [3, 4, 5, 6]
    (said,) = trace.meta.notes
    assert f"ProfilerStep#3 to ProfilerStep#6 are taken, the 3 of another one (ProfilerStep#{first} to " in said


@pytest.mark.parametrize(("overlap_ns", "taken"), [(0, 4), (250, 4), (1_001, 2)])
def test_steps_that_overlap_by_how_their_times_are_written_are_of_one_profiler(overlap_ns, taken):
    """A program that saved microseconds since 1970 as floating-point numbers left a quarter of one uncertain."""
    ranges = [(3 + i, 100_000 * i, 100_000 * i + 100_000 + overlap_ns) for i in range(4)]
    trace = recorded(ranges)
    assert len(trace.steps) == taken
    assert bool(trace.meta.notes) is (taken < 4)
