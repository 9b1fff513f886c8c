import base64
import json
import zlib

import numpy as np
import pytest

from tests.builders import rank_trace
from traceanalyzer.analyses import run
from traceanalyzer.report.timeline import timeline_data, varints

OPS = [("compute", 5, 40, 1), ("comm", 20, 300, 10), ("copy", 310, 320)]


def decode(raw: bytes) -> list[int]:
    out, value, shift = [], 0, 0
    for byte in raw:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            out.append(value)
            value, shift = 0, 0
    return out


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


@pytest.mark.parametrize("values", [[], [0], [127, 128, 129], [2**14 - 1, 2**14, 2**53], [2**62, 0, 1]])
def test_varints_are_read_back(values):
    assert decode(varints(np.array(values, dtype=np.int64))) == values


def tables(data) -> tuple[dict, list[dict]]:
    """What is said of the timeline, and each rank's operations by column."""
    meta, numbers = json.loads(unpacked(data.meta)), iter(decode(unpacked(data.numbers)))
    found = []
    for entry in meta["ranks"]:
        for table in (entry["operations"], entry["gaps"]):
            columns = {name: [next(numbers) for _ in range(table["count"])] for name in table["columns"]}
            steps = [-(step + 1) // 2 if step % 2 else step // 2 for step in columns["start"]]
            found.append(columns | {"start": np.cumsum(steps).tolist()})
    return meta, found[::2]


def test_every_operation_is_carried_exactly():
    results = run(
        [rank_trace(OPS, steps=[(0, 15)]), rank_trace(OPS, rank=1)], ["ranks", "steps", "timeline", "calls", "clocks"]
    )
    data = timeline_data(results)
    assert data is not None
    assert (data.count, data.ranks, data.left_out) == (6, [0, 1], [])
    meta, (own, other) = tables(data)
    assert meta["zero"] == "5"
    assert own["start"] == other["start"] == [0, 15, 305]
    assert own["length"] == [35, 280, 10]
    assert [meta["names"][name][2] for name in own["name"]] == ["compute", "comm", "copy"]
    assert [meta["streams"][stream] for stream in own["stream"]] == [7, 17, 7]
    assert own["step"] == [1, 1, 0]  # step 0, step 0, none
    assert own["delay"] == [5, 11, 0]  # one more than the launch delay; 0: no launch
    assert [meta["launches"][launch] for launch in own["launch"]] == ["cudaLaunchKernel", "cudaLaunchKernel", ""]
    assert [meta["calls"][call] for call in own["call"]] == ["", "all-reduce", ""]
    unknown = {
        name: [meta[where][at] for at in own[name]] for name, where in (("operator", "operators"), ("why", "whys"))
    }
    assert unknown == {"operator": [""] * 3, "why": [""] * 3}
    assert own["bytes"] == own["wait"] == own["instance"] == own["awaited"] == [0, 0, 0]
    assert meta["steps"] == [[0, 0, -5, 295, True]]


@pytest.mark.parametrize(
    ("later_ns", "is_common", "first"),
    [pytest.param(0, True, [0, 0], marks=pytest.mark.thorough), (30, True, [0, 30]), (10_000, False, [0, 0])],
)
def test_ranks_lie_on_one_clock_only_where_their_windows_overlap(later_ns, is_common, first):
    """Ranks that share no collective, which would tell how far their clocks are apart."""
    own = [op for op in OPS if op[0] != "comm"]
    moved = [(kind, start + later_ns, end + later_ns, *rest) for kind, start, end, *rest in own]
    data = timeline_data(run([rank_trace(own), rank_trace(moved, rank=1)]))
    assert data is not None
    assert ("do not agree" in data.clock.note) is not is_common
    assert [own["start"][0] for own in tables(data)[1]] == first


def test_nothing_ran():
    assert timeline_data(run([rank_trace([])])) is None
