"""What memory is held for, from events alone: blocks are followed by their addresses, and categories add up."""

import pytest

import traceanalyzer as ta
from tests.builders import document, host, kernel, write
from traceanalyzer.analyses.memory.memory_categories import CATEGORIES


class Allocator:
    """Events of a rank, each of so many bytes at an address."""

    def __init__(self, level=1000):
        self.level = level
        self.events = [self._event(0, 0, 1)]

    def _event(self, address, size, at):
        self.level += size
        args = {
            "Total Allocated": self.level,
            "Total Reserved": 5000,
            "Device Id": 0,
            "Device Type": 1,
            "Addr": address,
            "Bytes": size,
        }
        return {"ph": "i", "name": "[memory]", "ts": at, "tid": 1, "args": args}

    def change(self, address, size, at):
        self.events.append(self._event(address, size, at))


def trace_of(folder, *changes, ranges=()):
    allocator = Allocator()
    for address, size, at in changes:
        allocator.change(address, size, at)
    phases = [("forward", 10, 20), ("backward", 30, 20), ("optimizer", 50, 20), *ranges]
    spans = [host(start, length, name=name, cat="user_annotation") for name, start, length in phases]
    write(folder / "rank0.json", document([kernel(0, 5), *spans, *allocator.events], rank=0, world_size=1))
    return ta.load(folder)


@pytest.mark.parametrize(
    ("given", "taken", "category"),
    [
        (15, 35, "activations"), (15, 18, "temporaries"), (35, 55, "gradients"), (35, 38, "temporaries"),
        (55, None, "optimizer state"), (55, 58, "temporaries"), (15, None, "activations"), (75, 80, "unknown"),
    ],
)  # fmt: skip
def test_a_block_is_what_its_phases_say(tmp_path, given, taken, category):
    changes = [(7, 400, given), *([(7, -400, taken)] if taken else [])]
    rows = ta.memory_categories(trace_of(tmp_path, *changes)).rows()
    most = {row["category"]: row["most_bytes"] for row in rows}
    assert most[category] == (1400 if category == "unknown" else 400)
    assert sum(row["peak_bytes"] for row in rows) == 1400
    assert [row["category"] for row in rows] == list(CATEGORIES)


def test_what_collectives_allocate_is_communication(tmp_path):
    traces = trace_of(tmp_path, (7, 400, 15), (7, -400, 35), ranges=[("c10d::_allgather_base_", 14, 3)])
    rows = {row["category"]: row["peak_bytes"] for row in ta.memory_categories(traces).rows()}
    assert (rows["communication"], rows["unknown"]) == (400, 1000)


def test_an_address_is_used_again(tmp_path):
    changes = [(7, 400, 15), (7, -400, 35), (7, 300, 36), (7, -300, 38)]
    most = {row["category"]: row["most_bytes"] for row in ta.memory_categories(trace_of(tmp_path, *changes)).rows()}
    assert (most["activations"], most["temporaries"]) == (400, 300)


def test_the_lane_adds_up_and_holds_the_peak(tmp_path):
    changes = [(number, 10, 10 + number / 100) for number in range(1, 900)]
    frame = ta.memory_levels(trace_of(tmp_path, *changes), memory_points=50).to_frame()
    parts = [name for name in frame if name.endswith("_bytes") and name != "allocated_bytes"]
    assert (frame[parts].sum(axis=1) == frame["allocated_bytes"]).all()
    assert len(frame) <= 100
    assert frame.loc[frame["is_peak"].astype(bool), "allocated_bytes"].tolist() == [1000 + 8990]


def test_without_addresses_nothing_is_said(tmp_path):
    args = {"Total Allocated": 5, "Total Reserved": 9, "Device Id": 0, "Device Type": 1}
    events = [{"ph": "i", "name": "[memory]", "ts": 1, "tid": 1, "args": args}]
    write(tmp_path / "rank0.json", document([kernel(0, 5), *events], rank=0, world_size=1))
    assert not ta.memory_categories(ta.load(tmp_path)).rows()


def test_a_recorded_run_adds_up_to_its_peak():
    from tests.samples import RUNNERS

    traces = ta.load(RUNNERS / "pytorch_ddp_memory")
    frame = ta.memory_categories(traces).to_frame()
    peaks = {row["rank"]: row["peak_allocated_bytes"] for row in ta.memory(traces).rows()}
    assert frame.groupby("rank")["peak_bytes"].sum().to_dict() == peaks
    assert frame.loc[frame["category"] == "activations", "share_pct"].min() > 40
