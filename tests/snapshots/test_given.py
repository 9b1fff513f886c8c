"""What the allocator gave for each request, by the rules of PyTorch's own: equal to what it says at the end."""

import numpy as np
import pytest

from tests.snapshots.builders import BASE, History, write
from traceanalyzer.snapshots import examine_snapshot, read_snapshot
from traceanalyzer.snapshots.examination import rounded_bytes


def test_requests_are_rounded():
    assert rounded_bytes(np.array([0, 1, 512, 513, 5000])).tolist() == [512, 512, 512, 1024, 5120]


def snapshot_with(tmp_path, gap, **settings):
    """A block of 2 MiB with `gap` bytes to the segment's end, that was freed and taken by a smaller request."""
    history = History()
    size = 2 << 20
    addr = history.alloc(size)
    content = history.snapshot(reserved=size + gap)
    content["segments"][0]["blocks"] = [
        {"address": addr, "size": size + gap, "requested_size": size, "state": "active_allocated", "frames": []}
    ]
    content["segments"][0]["allocated_size"] = size + gap
    content["allocator_settings"] |= settings
    return examine_snapshot(read_snapshot(write(tmp_path / "rank0_snapshot.pickle", content)))


@pytest.mark.parametrize("gap", [512, 1 << 20])
def test_what_is_too_small_to_split_stays_with_its_block(tmp_path, gap):
    one = snapshot_with(tmp_path, gap)
    assert one.is_exact
    assert one.peak_allocated_bytes == (2 << 20) + gap
    assert one.peak_bytes == 2 << 20


def test_other_rules_are_not_taken_for_exact(tmp_path):
    assert not snapshot_with(tmp_path, 512, max_split_size=1 << 20).is_exact
    assert not snapshot_with(tmp_path, 512, roundup_power2_divisions={"1": 4}).is_exact


def test_a_larger_rest_is_split_off(tmp_path):
    history = History()
    addr = history.alloc(2 << 20)
    history.free(addr)
    history.next = BASE
    history.alloc(1 << 20)
    one = examine_snapshot(read_snapshot(write(tmp_path / "rank0_snapshot.pickle", history.snapshot(4 << 20))))
    assert (one.is_exact, one.peak_allocated_bytes) == (True, 2 << 20)


def test_a_block_that_waits_for_a_stream_is_not_allocated(tmp_path):
    history = History()
    first = history.alloc(1 << 20)
    history.event("free_requested", first, 1 << 20)
    history.alloc(1 << 20)
    history.event("free_completed", first, 1 << 20)
    history.blocks.pop(first)
    one = examine_snapshot(read_snapshot(write(tmp_path / "rank0_snapshot.pickle", history.snapshot())))
    assert one.peak_allocated_bytes == 1 << 20
    assert one.peak_bytes == 2 << 20
