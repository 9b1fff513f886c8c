"""A recorded rank's trace against the snapshot that it wrote just before: both know what a step allocates."""

import pytest

import traceanalyzer as ta
from tests.samples import SAMPLES
from traceanalyzer.snapshots import examine_snapshot, find_snapshots, read_snapshot

FOLDER = SAMPLES / "fsdp_memory"

BETWEEN = 512
"""Bytes that the program took between the snapshot and the first step of the trace: one block of the smallest size."""


def test_peak_end_and_reserved():
    (path,) = find_snapshots(FOLDER)
    one, row = examine_snapshot(read_snapshot(path)), ta.memory(ta.load(FOLDER / "rank0.json.gz")).rows()[0]
    assert row["peak_allocated_bytes"] == pytest.approx(one.peak_allocated_bytes, rel=0.002)
    assert row["allocated_bytes"] == one.end["allocated"] + BETWEEN
    assert row["reserved_bytes"] == one.end["reserved"]
