"""What is said of captures without GPU work."""

from tests.host_builders import host_work
from traceanalyzer.analyses.overview import host_work_over_ranks
from traceanalyzer.report.words.host import sentences


def said(rows):
    """Of rows (rank, role, name, ms a step)."""
    work = host_work(rows)
    results = {"host_work": work, "host_work_over_ranks": host_work_over_ranks.across({}, work)}
    return [sentence.replace("\u202f", " ") for sentence in sentences(results)[1:]]


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
        "Of the CPU's collectives the longest is gloo:all_reduce: 8 ms to 60 ms a step, by rank.",
    ]
