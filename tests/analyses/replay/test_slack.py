"""What is urgent, and what a job's length is made of, of times that are written out; in µs."""

from tests.host_builders import host_trace
from traceanalyzer.analyses import run

US = 1_000


def rank(number, *ops):
    """Operations (name, start, end, launch) and optionally on another stream than 7."""
    launched = sorted(launch for _, _, _, launch, *_ in ops)
    known = [
        (name, start * US, end * US, launched.index(launch) + 1, *stream) for name, start, end, launch, *stream in ops
    ]
    return host_trace(known, [("cudaLaunchKernel", at * US, at * US + 100) for at in launched], rank=number)


TWO = (
    rank(0, ("gemm", 10, 60, 5), ("relu", 61, 70, 6), ("gelu", 20, 30, 7, 9)),
    rank(1, ("gemm", 10, 100, 5)),
)
"""Of rank 0 all could end later: rank 1 ends last."""


def test_an_operation_may_end_later_by_what_the_last_one_ends_after_all_that_follows_it():
    rows = run(TWO, ["slack"])["slack"].rows()
    assert [(row["name"], row["calls"], row["total_ns"] / US) for row in rows] == [
        ("gemm", 2, 140),
        ("relu", 1, 9),
        ("gelu", 1, 10),
    ]
    assert [(row["least_slack_ns"] / US, row["median_slack_ns"] / US) for row in rows] == [(0, 15), (30, 30), (70, 70)]
    assert [(row["urgent_calls"], row["urgent_ns"] / US) for row in rows] == [(1, 90), (0, 0), (0, 0)]
