"""Peaks of memory against a slow implementation."""

from hypothesis import example, given

from tests.analyses.random_events import RANKS, Events, Gpu, kineto_events, read
from tests.conftest import examples
from traceanalyzer.analyses import run

WANTED = ("memory", "memory_levels")


def counted(rank):
    """Peak of what tensors hold, when first, and of what is reserved; `None` without events."""
    if not rank.memory:
        return None
    most = max(allocated for _, allocated, _ in rank.memory)
    return {
        "peak_allocated_bytes": most,
        "peak_ns": min(time for time, allocated, _ in rank.memory if allocated == most),
        "peak_reserved_bytes": max(reserved for *_, reserved in rank.memory),
    }


def figures(traces, rank=0):
    memory, levels = ([row for row in table.rows() if row["rank"] == rank] for table in run(traces, WANTED).values())
    if not memory:
        assert not levels
        return None
    (top,) = [row for row in levels if row["is_peak"]]
    assert top["allocated_bytes"] == memory[0]["peak_allocated_bytes"]
    assert top["allocated_bytes"] == max(row["allocated_bytes"] for row in levels)
    assert top["time_ns"] == memory[0]["peak_ns"]
    return {
        "peak_allocated_bytes": top["allocated_bytes"],
        "peak_ns": top["time_ns"],
        "peak_reserved_bytes": memory[0]["peak_reserved_bytes"],
    }


@examples(10)
@given(RANKS)
@example(Events((Gpu(0, 9, "gemm", 7, None, None),), (), ((2, 1, 9), (5, 8, 9), (5, 3, 9))))
def test_peaks_are_those_counted(tmp_path_factory, rank):
    assert figures([read(tmp_path_factory.getbasetemp(), kineto_events(rank))]) == counted(rank)
