"""What was allocated for requests: as the allocator rounds them, and until their release is asked for."""

from tests.snapshots.builders import History, write
from traceanalyzer.snapshots import examine_snapshot, read_snapshot


def test_requests_are_rounded(tmp_path):
    history = History()
    for size in (0, 1, 512, 513, 5000):
        history.free(history.alloc(size))
    one = examine_snapshot(read_snapshot(write(tmp_path / "rank0_snapshot.pickle", history.snapshot())))
    assert one.levels["allocated_bytes"].unique().tolist() == [512, 0, 1024, 5120]


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
