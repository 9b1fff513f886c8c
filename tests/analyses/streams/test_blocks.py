"""Repeated blocks: found by range or by kernel sequence, measured, bounded."""

import pytest

from tests.analyses.streams.test_streams import case, frame
from tests.host_builders import host_trace


def block(start, *, copies):
    """Upload, two kernels, download; together 100 ns, or 60 when the copies run beside the kernels."""
    if copies == "before and after":
        return [("HtoD", start, start + 20), ("gemm", start + 20, start + 70), ("relu", start + 70, start + 80),
                ("DtoH", start + 80, start + 100)]  # fmt: skip
    return [("HtoD", start, start + 20, 8), ("gemm", start, start + 50), ("relu", start + 50, start + 60),
            ("DtoH", start + 10, start + 30, 9)]  # fmt: skip


@pytest.mark.parametrize(
    ("copies", "pitch", "bound", "exposed"),
    [("before and after", 100, "serial", 40), ("beside", 60, "compute", 0)],
)
@pytest.mark.parametrize("is_named", [True, False], ids=["by range", "by kernels"])
def test_what_bounds_a_block(copies, pitch, bound, exposed, is_named):
    ops, calls, ranges = [], [], []
    for number in range(5):
        for op in block(number * pitch, copies=copies):
            calls.append(("cudaLaunchKernel", len(calls) - 1_000, len(calls) - 999))
            ops.append((*op[:3], len(calls), op[3] if len(op) > 3 else 7))
        ranges.append((f"block_{number}", len(calls) - 1_004, len(calls) - 1_000))
    traces = [host_trace(ops, calls, ranges=ranges if is_named else [])]
    rows = frame(traces, "blocks")
    assert rows["source"].unique().tolist() == ["range" if is_named else "kernel sequence"]
    assert rows["name"].dropna().tolist() == ([f"block_{number}" for number in range(5)] if is_named else [])
    parts = ["pitch_ns", "compute_ns", "upload_ns", "download_ns", "upload_bytes", "exposed_ns"]
    assert rows.loc[:3, parts].drop_duplicates().to_numpy().tolist() == [[pitch, 60, 20, 20, 200, exposed]]
    assert rows["bound"].dropna().tolist() == [bound] * 4
    assert rows["pitch_ns"].isna().tolist() == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("name", "bound", "pitch_ms"), [("offload_naive", "serial", 5.185), ("offload_overlap", "compute", 2.745)]
)
def test_offloading_samples(name, bound, pitch_ms):
    row = frame(case(name), "block_bounds").iloc[0]
    assert (row["blocks"], row["bound"], row["bound_blocks"]) == (12, bound, 11)
    assert row["pitch_ns"] / 1e6 == pytest.approx(pitch_ms, abs=0.001)
    assert row["upload_bytes"] == row["download_bytes"] == 64 * 2**20
