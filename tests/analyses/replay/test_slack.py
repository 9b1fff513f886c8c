"""What is urgent, and what a job's length is made of, of times that are written out; in µs."""

import pytest

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


def test_of_the_same_slack_what_takes_longest_is_first():
    rows = run([rank(0, ("gelu", 10, 20, 5), ("gemm", 21, 50, 6), ("relu", 51, 60, 7))], ["slack"])["slack"].rows()
    assert [(row["name"], row["least_slack_ns"]) for row in rows] == [("gemm", 0), ("gelu", 0), ("relu", 0)]


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (TWO, {(1, "compute", "gemm"): 90}),
        (TWO[:1], {(0, "compute", "gemm"): 50, (0, "between_kernels", None): 1, (0, "compute", "relu"): 9}),
        # its host launches the second one late
        ([rank(0, ("gemm", 10, 20, 5), ("relu", 58, 100, 50))],
         {(0, "host", None): 40, (0, "launch", None): 8, (0, "compute", "relu"): 42}),
        # what nothing explains
        ([rank(0, ("gemm", 10, 20, 5), ("relu", 40, 100, 6))],
         {(0, "compute", "gemm"): 10, (0, "between_kernels", None): 5, (0, "unknown", None): 15, (0, "compute", "relu"): 60}),
    ],
    ids=["the slowest rank", "one after the other", "a late host", "late for no reason"],
)  # fmt: skip
def test_the_path_is_what_the_end_waited_for(ranks, expected):
    results = run(ranks, ["critical_path", "path_stretches"])
    table = results["critical_path"].to_frame()
    found = {
        (row["rank"], row["category"], row["name"]): row["path_ns"] / US for row in results["critical_path"].rows()
    }
    assert found == expected
    assert set(table["window_ns"] / US) == {sum(expected.values())}
    stretches = results["path_stretches"].to_frame()
    assert (stretches["start_ns"].iloc[1:].to_numpy() == stretches["end_ns"].iloc[:-1].to_numpy()).all()
    places = stretches.groupby("category")["where"].unique().map(list).to_dict()
    assert all(places[category] == (["host"] if category == "host" else ["stream 7"]) for category in places)
