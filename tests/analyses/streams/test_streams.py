"""Roles of streams, what runs together, copies by direction: literal cases and the stream samples."""

import pytest

import traceanalyzer as ta
from tests.host_builders import host_trace
from tests.samples import SAMPLES
from traceanalyzer.analyses import run


def case(name):
    return ta.load([SAMPLES / "streams" / f"{name}.json.gz"]).ranks


def frame(traces, name):
    return run(traces, [name])[name].to_frame()


@pytest.mark.parametrize(
    ("ops", "role"),
    [
        ([("gemm", 0, 95), ("memset", 95, 100)], "compute"),
        ([("gemm", 0, 85), ("memset", 85, 100)], "mixed"),
        ([("nccl", 0, 10)], "communication"),
        ([("HtoD", 0, 10)], "upload"),
        ([("DtoH", 0, 10)], "download"),
        ([("PtoP", 0, 10)], "exchange"),
    ],
)
def test_role_follows_from_content(ops, role):
    assert frame([host_trace(ops)], "streams")["role"].tolist() == [role]


def test_copies_by_direction_and_memory():
    ops = [("HtoD", 0, 10), ("HtoD", 20, 40, -1, 7, "pageable"), ("DtoH", 5, 15, -1, 8), ("gemm", 0, 8, -1, 9)]
    rows = frame([host_trace(ops)], "copies").set_index(["direction", "source_memory"])
    figures = rows[["copies", "size_bytes", "total_ns", "exposed_ns", "with_other_copies_ns"]]
    assert {key: values.tolist() for key, values in figures.iterrows()} == {
        ("HtoD", "pinned"): [1, 100, 10, 2, 5],
        ("HtoD", "pageable"): [1, 200, 20, 20, 0],
        ("DtoH", "device"): [1, 100, 10, 7, 5],
    }
    assert rows["rate_gbps"].tolist() == [10.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("name", "rates", "together_pct"),
    [
        ("broadcast1", {"HtoD": 55.4}, None),
        ("broadcast2", {"HtoD": 55.5, "PtoP": 313.5}, 0.0),
        ("broadcast3", {"HtoD": 55.0, "PtoP": 350.0}, 94.07),
    ],
)
def test_three_ways_to_broadcast(name, rates, together_pct):
    """From the host to every GPU; host, GPU 0, peer; the same in chunks that overlap."""
    traces = case(name)[:1]
    copies = frame(traces, "copies").set_index("direction")["rate_gbps"]
    assert {key: round(float(value), 1) for key, value in copies.items()} == rates
    pairs = frame(traces, "stream_pairs").set_index(["first", "second"])["both_pct"]
    together = pairs.get(("upload", "exchange"))
    assert together is None if together_pct is None else together == pytest.approx(together_pct, abs=0.01)
