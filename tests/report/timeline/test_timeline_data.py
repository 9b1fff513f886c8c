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


def test_every_operation_is_carried_exactly():
    results = run([rank_trace(OPS, steps=[(0, 15)]), rank_trace(OPS, rank=1)], ["ranks", "steps", "timeline", "calls"])
    data = timeline_data(results)
    assert data is not None
    assert (data.count, data.ranks, data.left_out) == (6, [0, 1], [])
    meta = json.loads(unpacked(data.meta))
    numbers = decode(unpacked(data.operations))
    assert meta["zero"] == "5"
    assert [entry["first"] for entry in meta["ranks"]] == [0, 0]
    columns = [numbers[place : place + 3] for place in range(0, 21, 3)]
    assert columns[0] == [0, 15, 290]  # starts, from the one before
    assert columns[1] == [35, 280, 10]  # durations
    assert [meta["names"][name][2] for name in columns[2]] == ["compute", "comm", "copy"]
    assert [meta["ranks"][0]["streams"][stream] for stream in columns[3]] == [7, 17, 7]
    assert columns[4] == [1, 1, 0]  # step 0, step 0, none
    assert columns[5] == [5, 11, 0]  # one more than the launch delay; 0: no launch
    assert numbers[21:27] == [0] * 6  # neither operators nor ranges were recorded
    assert numbers[27:32] == [1, 0, 0, 0, 0]  # the call's label; bytes, wait, why none, the copy's bytes are not known
    assert meta["steps"] == [[0, 0, -5, 295, True]]
    assert len(numbers) == 64


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
    assert data.clock.is_common is is_common
    assert ("do not agree" in data.clock.note) is not is_common
    assert [entry["first"] for entry in json.loads(unpacked(data.meta))["ranks"]] == first


def test_nothing_ran():
    assert timeline_data(run([rank_trace([])])) is None
