"""Levels of the allocator, from `[memory]` events."""

import json

import pytest

import traceanalyzer as ta
from tests.builders import document, kernel, write
from tests.samples import RUNNERS


def memory(time_us, allocated, reserved, device=0):
    args = {"Total Allocated": allocated, "Total Reserved": reserved, "Device Id": device, "Device Type": 1}
    return {"ph": "i", "name": "[memory]", "ts": time_us, "args": args}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # A level falls again; events are not in order of time.
        ([memory(9, 10, 64), memory(2, 30, 40), memory(5, 20, 64)], (3, 10, 30, 64, 64)),
        # Another GPU's.
        ([memory(1, 5, 6), memory(2, 500, 600, device=1)], (1, 5, 5, 6, 6)),
    ],
)
def test_last_and_highest_levels(tmp_path, events, expected):
    write(tmp_path / "rank0.json", document([kernel(0, 5), *events], rank=0, world_size=1))
    (row,) = ta.memory(ta.load(tmp_path)).rows()
    columns = ("events", "allocated_bytes", "peak_allocated_bytes", "reserved_bytes", "peak_reserved_bytes")
    assert tuple(row[column] for column in columns) == expected


def test_no_events_no_row():
    assert not ta.memory(ta.load(RUNNERS / "pytorch_ddp")).rows()


def test_without_events_the_runs_own_record_speaks():
    run_memory = {0: {"peak_allocated_bytes": 5, "peak_reserved_bytes": 7}, 9: {"peak_allocated_bytes": 1}}
    (row,) = ta.memory(ta.load(RUNNERS / "pytorch_ddp"), run_memory=run_memory).rows()
    assert (row["rank"], row["source"], row["peak_allocated_bytes"], row["allocated_bytes"]) == (
        0, "run.json: whole run", 5, None,
    )  # fmt: skip
    assert row["headroom_bytes"] == row["device_bytes"] - 7


def test_a_recorded_step_needs_what_one_without_a_profiler_did():
    told = json.loads((RUNNERS / "pytorch_ddp_memory" / "run.json").read_text())["memory"]
    rows = ta.memory(ta.load(RUNNERS / "pytorch_ddp_memory")).rows()
    assert [row["rank"] for row in rows] == [0, 1]
    for row, unprofiled in zip(rows, told, strict=True):
        for column in ("peak_allocated_bytes", "peak_reserved_bytes"):
            assert row[column] == pytest.approx(unprofiled[column], rel=0.1), column
