"""Nothing is concluded of ranks whose files lack operations or tell times that cannot be."""

import pytest

from tests.asked import ASKED
from tests.host_builders import host_trace
from traceanalyzer import findings
from traceanalyzer.analyses import run
from traceanalyzer.report import words
from traceanalyzer.report.contents import Report

US = 1_000
DAY = 24 * 3600 * 10**9


def calls(*starts):
    return [("cudaLaunchKernel", start * US, (start + 5) * US) for start in starts]


def nested():
    """A kernel whose length runs over the next ones of its stream, and a host that is mostly waited for."""
    ops = [("gemm", (100 * n + 10) * US, (100 * n + 30) * US, n + 1) for n in range(20)]
    ops[3] = ("gemm", 310 * US, 1_500 * US, 4)
    return ops, calls(*range(0, 2_000, 100))


def far():
    ops = [
        ("gemm", (100 * n + 10) * US + n // 10 * 2 * DAY, (100 * n + 30) * US + n // 10 * 2 * DAY, n + 1)
        for n in range(20)
    ]
    return ops, [
        ("cudaLaunchKernel", n * 100 * US + n // 10 * 2 * DAY, n * 100 * US + n // 10 * 2 * DAY + 5) for n in range(20)
    ]


def zeroes():
    return [("gemm", (100 * n + 10) * US, (100 * n + 10) * US, n + 1) for n in range(20)], calls(*range(0, 2_000, 100))


def some_zeroes():
    """One kernel of ten has no time; the others of its name take 20 µs each."""
    ops, made = zeroes()
    return [ops[n] if n % 10 == 0 else (ops[n][0], ops[n][1], ops[n][2] + 20 * US, n + 1) for n in range(20)], made


def backwards():
    """Of the host's calls every fifth ends before it starts."""
    ops = [("gemm", (100 * n + 10) * US, (100 * n + 30) * US, n + 1) for n in range(20)]
    return ops, [
        (name, start, start - 3 * US if n % 5 == 0 else end)
        for n, (name, start, end) in enumerate(calls(*range(0, 2_000, 100)))
    ]


def twice():
    """Two recordings in one list: the second one's operations and calls bear the numbers of the first one's."""
    ops = [("gemm", (100 * n + 10) * US, (100 * n + 30) * US, n % 10 + 1) for n in range(20)]
    return ops, calls(*range(0, 1_000, 100))


def reversed_launches():
    """The first operation bears the number of the last launch, and so on."""
    ops = [("gemm", (100 * n + 3_000) * US, (100 * n + 3_020) * US, 20 - n) for n in range(20)]
    return ops, calls(*range(0, 2_000, 100))


def graphs():
    """Steps of a graph of which nothing was recorded: the GPU seems idle while the host waits for it."""
    ops, made = [], []
    for n in range(10):
        at = 1_000 * n
        ops.append(("gemm", (at + 10) * US, (at + 15) * US, 4 * n + 1))
        ops.append(("gemm", (at + 960) * US, (at + 965) * US, 4 * n + 4))
        made += [("cudaLaunchKernel", at * US, (at + 5) * US), ("cudaGraphLaunch", (at + 20) * US, (at + 25) * US),
                 ("cudaStreamSynchronize", (at + 30) * US, (at + 940) * US),
                 ("cudaLaunchKernel", (at + 950) * US, (at + 955) * US)]  # fmt: skip
    return ops, made


@pytest.mark.parametrize(
    ("made", "rule", "told"),
    [
        pytest.param(
            nested(),
            "impossible_times",
            "Rank 0's times cannot be true: operations run inside others of their stream",
            marks=pytest.mark.thorough,
        ),
        (far(), "impossible_times", "Rank 0's times cannot be true: operations lie over a day apart"),
        pytest.param(
            zeroes(),
            "impossible_times",
            "Rank 0's times cannot be true: operations take no time",
            marks=pytest.mark.thorough,
        ),
        (some_zeroes(), "impossible_times", "Rank 0's times cannot be true: operations take no time"),
        (backwards(), "impossible_times", "Rank 0's times cannot be true: events end before they start"),
        (twice(), "shared_numbers", "Rank 0's operations share the numbers of their launches"),
        (reversed_launches(), "shared_numbers", "Rank 0's operations of one stream run in another order than"),
        (graphs(), "lost_operations", "did not record what CUDA graphs ran (10 launches of them on rank 0)"),
    ],
    ids=["nested", "far apart", "no time", "some without time", "backwards", "two recordings", "reversed", "graphs"],
)
def test_of_such_a_rank_only_that_is_said(made, rule, told):
    results = run([host_trace(*made)], ASKED)
    found = findings.find(results)
    assert [item.rule for item in found] == [rule]
    assert told in found[0].title
    assert words.verdict_sentences(Report("x", results, found), words.split(results)) == [found[0].title]
