"""What of an operation's start its launch, the operation before it and what it waits for explain; times in µs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.analyses.replay.explained import explained, offsets
from traceanalyzer.model.schema import NONE

US = 1_000
BEGIN = 1_000_000_000


def piece_of(ops, waits=(), why_no_host=""):
    """Operations (start, end, launch or none, stream) in order of stream and start, and which wait for which."""
    launched = sorted(launch for _, _, launch, _ in ops if launch is not None)
    known = [
        ("gemm", BEGIN + start * US, BEGIN + end * US, launched.index(launch) + 1 if launch is not None else -1, stream)
        for start, end, launch, stream in ops
    ]
    calls = [("cudaLaunchKernel", BEGIN + at * US, BEGIN + at * US + 1) for at in launched]
    engine = run([host_trace(known, calls)], ["replay"])["replay"].engine
    (nodes,) = engine.job.nodes.values()
    rows = pd.DataFrame(
        {"source": [source for source, _ in waits], "target": [target for _, target in waits]}, dtype="int64"
    )
    return replace(nodes.piece, waits=rows, why_no_host=why_no_host)


def in_us(values):
    return (np.asarray(values) / US).tolist()


QUEUED = [
    (5, 100, 0, 7),  # its launch decides: 5 µs after it
    (102, 200, 10, 7),  # three that were launched long before: 2, 3 and 1 µs after the one before
    (203, 300, 12, 7),
    (301, 400, 14, 7),
    (413, 450, 395, 7),  # launched a moment before the one before ended: that is no measure of latency
    (509, 600, 500, 7),  # its launch again: 9 µs
    (660, 680, 520, 7),  # late for no reason
    (750, 800, 700, 7),  # late after its launch
]  # fmt: skip


def test_delays_are_as_recorded_where_they_decide_up_to_a_limit_and_the_median_where_they_do_not():
    known = explained(piece_of(QUEUED))
    assert in_us(known.turnaround_ns) == [2, 2, 3, 1, 2, 2, 5, 2]
    assert in_us(known.latency_ns) == [5, 7, 7, 7, 18, 9, 7, 20]
    assert in_us(known.lag_ns) == [0, 0, 0, 0, 0, 0, 55, 30]
    assert (known.release_ns == NONE).all()


@pytest.mark.parametrize(("starts_us", "wait_us", "lag_us"), [(103, 3, 0), (105, 5, 0), (110, 5, 5), (99, -1, 0)])
def test_what_waits_for_another_stream_begins_soon_after_that(starts_us, wait_us, lag_us):
    known = explained(piece_of([(8, 100, 0, 7), (starts_us, 200, 10, 9)], [(0, 1)]))
    assert in_us(known.wait_ns) == [wait_us]
    assert in_us(known.lag_ns) == [0, lag_us]


@pytest.mark.parametrize(
    ("launch_us", "starts_us", "turnaround_us", "wait_us"),
    [(30, 103, 1.5, 3), (99, 110, 1.5, 1.5)],
    ids=["the wait decides", "the launch decides"],
)
def test_what_does_not_decide_takes_as_long_as_it_does_elsewhere(launch_us, starts_us, turnaround_us, wait_us):
    known = explained(piece_of([(8, 100, 0, 7), (18, 50, 10, 9), (starts_us, 200, launch_us, 9)], [(0, 2)]))
    assert in_us(known.turnaround_ns)[2] == turnaround_us
    assert in_us(known.wait_ns) == [wait_us]
    assert in_us(known.lag_ns) == [0, 0, 0]


def test_a_wait_that_does_not_decide_takes_as_long_as_a_turnaround():
    ops = [(8, 100, 0, 7), (18, 200, 10, 9), (202, 300, 12, 9)]
    known = explained(piece_of(ops, [(0, 2)]))
    assert in_us(known.wait_ns) == [2]
    assert in_us(known.turnaround_ns)[2] == 2
    assert in_us(known.lag_ns) == [0, 0, 0]


@pytest.mark.parametrize(
    ("starts_us", "why_no_host", "release_us", "lag_us"),
    [
        (155, "", None, 50),  # as late as launches may be
        (156, "", 156, 0),
        (156, "no host", None, 51),
    ],
)
def test_what_was_launched_before_the_capture_and_began_late_is_moved_by_nothing(
    starts_us, why_no_host, release_us, lag_us
):
    ops = [(50, 100, None, 7), (starts_us, 200, None, 7), (210, 300, 205, 7)]
    known = explained(piece_of(ops, why_no_host=why_no_host))
    assert [None if ns == NONE else (ns - BEGIN) / US for ns in known.release_ns] == [50, release_us, None]
    assert in_us(known.lag_ns)[1] == lag_us


def test_without_one_that_shows_them_delays_are_typical():
    known = explained(piece_of([(30, 100, 0, 7), (101, 200, 99, 7)]))
    assert in_us(known.latency_ns) == [20, 2]
    assert in_us(known.turnaround_ns) == [1.5, 1]


def test_offsets_are_ends_since_a_segments_begin():
    segment, ns = np.array([0, 0, 1, 1, 1, 2]), np.array([3, 4, 5, 1, 2, 9])
    assert offsets(segment, ns).tolist() == [3, 7, 5, 6, 8, 9]
