"""Levels of the allocator, from `[memory]` events."""

import pytest

import traceanalyzer as ta
from tests.builders import document, kernel, write


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
