"""What memory is held for, from events alone: blocks are followed by their addresses, and categories add up."""

import pytest

import traceanalyzer as ta
from tests.builders import document, host, kernel, write
from traceanalyzer.analyses.memory import CATEGORIES


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


def test_a_recorded_run_adds_up_to_its_peak():
    from tests.samples import RUNNERS

    traces = ta.load(RUNNERS / "pytorch_ddp_memory")
    frame = ta.memory_categories(traces).to_frame()
    peaks = {row["rank"]: row["peak_allocated_bytes"] for row in ta.memory(traces).rows()}
    assert frame.groupby("rank")["peak_bytes"].sum().to_dict() == peaks
    assert frame.loc[frame["category"] == "activations", "share_pct"].min() > 40
