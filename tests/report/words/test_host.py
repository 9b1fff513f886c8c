"""What is said of captures without GPU work."""

import pytest

from tests.host_builders import host_trace, host_work
from traceanalyzer.analyses import overview, run
from traceanalyzer.analyses.host import cpu_time
from traceanalyzer.report.words import host_sentences

MS = 1_000_000

ASKED = ("host_work", "host_work_over_ranks", "cpu_steps", "cpu_step_parts")


def said(rows):
    """Of rows (rank, role, name, ms a step)."""
    work = host_work(rows)
    parts = cpu_time.CpuStepParts.without_rows()
    results = {
        "host_work": work,
        "host_work_over_ranks": overview.host_work_over_ranks_across({}, work),
        "cpu_step_parts": parts,
    }
    return [sentence.replace("\u202f", " ") for sentence in host_sentences(results)[2:]]


def test_what_takes_longest_is_named_with_the_ranks_that_do_it():
    assert said(
        [
            (0, "main", "forward", 10),
            (1, "main", "metrics", 50),
            (0, "collectives", "gloo:all_reduce", 60),
            (1, "collectives", "gloo:all_reduce", 8),
        ]
    ) == [
        "The main thread is longest in metrics on rank 1 alone: 50 ms a step.",
        "Of the CPU's collectives the longest is gloo:all_reduce: 8 ms (rank 1) to 60 ms (rank 0) a step.",
    ]


def on_cpus(lengths, rank=0, name="ProfilerStep#{}"):
    """A rank whose steps take so long (ms): half of it in `forward`, a quarter in autograd's thread."""
    ranges, host_ops, begin = [], [], 0
    for number, ms in enumerate(lengths, 1):
        end = begin + ms * MS
        ranges += [(name.format(number), begin, end), ("forward", begin, begin + ms * MS // 2)]
        host_ops.append(("autograd::engine::evaluate_function: MmBackward0", end - ms * MS // 4, end, 2))
        begin = end
    return host_trace(ranges=ranges, host_ops=host_ops, rank=rank)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([[10, 10, 10]], "A step takes 10 ms on the host. The main thread is in forward for 50 % and in nothing"),
        ([[10, 10, 10]], " that is recorded for 50 % of it; autograd's thread works for 25 %."),
        ([[8, 8], [12, 12]], "A step takes 10 ms on the host (8 ms to 12 ms, by rank). The main thread is"),
        ([[10, 10, 40]], " Step 3 is the longest: 40 ms."),
    ],
)  # fmt: skip
def test_how_long_steps_take_and_what_in_is_said(ranks, expected):
    made = run([on_cpus(lengths, rank) for rank, lengths in enumerate(ranks)], ASKED)
    assert expected in host_sentences(made)[1].replace("\u202f", " ")


def test_without_steps_how_long_they_take_is_said_not_to_be_known():
    made = run([host_trace(ranges=[("forward", 0, MS)])], ASKED)
    assert host_sentences(made)[1] == "No whole step is marked: how long one takes is not known."
