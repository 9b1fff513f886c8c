"""A recorded rank's trace against the snapshot that it wrote just before: both know what a step allocates."""

import numpy as np
import pandas as pd
import pytest

import traceanalyzer as ta
from tests.samples import SAMPLES
from traceanalyzer.analyses.memory import moments, step_of
from traceanalyzer.analyses.phases import NAMES, phases_of_moments
from traceanalyzer.snapshots import examination, examine_snapshot, find_snapshots, read_snapshot

FOLDER = SAMPLES / "fsdp_memory"

BETWEEN = 512
"""Bytes that the program took between the snapshot and the first step of the trace: one block of the smallest size."""


@pytest.fixture(scope="module")
def snapshot():
    (path,) = find_snapshots(FOLDER)
    return read_snapshot(path)


@pytest.fixture(scope="module")
def allocated(snapshot):
    """What `torch.cuda.memory_allocated` was after each event of the history that changed it."""
    lives = examination.lifetimes(snapshot)
    level = examination.given_allocated(snapshot, lives, examination.given_bytes(snapshot, lives)[0])
    return level[np.diff(level, prepend=0) != 0]


@pytest.fixture(scope="module")
def trace():
    (trace,) = ta.load(FOLDER / "rank0.json.gz").ranks
    return trace


def test_peak_end_and_reserved(snapshot):
    one, row = examine_snapshot(snapshot), ta.memory(ta.load(FOLDER / "rank0.json.gz")).rows()[0]
    assert one.is_exact
    assert row["peak_allocated_bytes"] == one.peak_allocated_bytes + BETWEEN == 717_576_192
    assert row["allocated_bytes"] == one.end["allocated"] + BETWEEN
    assert row["reserved_bytes"] == one.end["reserved"]


def test_each_level_of_the_trace_is_one_of_the_snapshot(allocated, trace):
    assert np.isin(moments(trace)["level_bytes"] - BETWEEN, allocated).all()


def test_a_step_by_phase_is_the_same_to_the_byte(allocated, trace):
    events = moments(trace)
    times, threads = events["time_ns"].to_numpy(), events["thread"].to_numpy()
    last = events[step_of(trace, times) == len(trace.steps) - 1]
    changes = np.diff(allocated)
    windows = np.lib.stride_tricks.sliding_window_view(changes, len(last) - 1)
    (at,) = np.flatnonzero((windows == last["change_bytes"].to_numpy()[1:]).all(axis=1))
    phase = np.array(NAMES)[phases_of_moments(trace, threads, times)][last.index[1:]]
    by_phase = pd.DataFrame({"phase": phase, "trace": last["change_bytes"].to_numpy()[1:], "snapshot": windows[at]})
    for sign in (1, -1):
        sums = by_phase.assign(**{name: (sign * by_phase[name]).clip(lower=0) for name in ("trace", "snapshot")})
        table = sums.groupby("phase")[["trace", "snapshot"]].sum()
        assert table["trace"].equals(table["snapshot"].rename("trace"))
        assert (table["trace"] > 0).sum() >= 3
