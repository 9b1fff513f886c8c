"""The breakdown of real captures against a reading of their raw events that shares no code with this package."""

import gzip
import json
from decimal import Decimal
from functools import cache

import pytest

import traceanalyzer as ta
from tests.samples import SAMPLES, sample

CAPTURES = [("symm", 2), pytest.param("pp_interleaved", 2, marks=pytest.mark.thorough)]

# What communicates in these captures, told by hand.
SPEAKS = ("nccl", "_shot_all_reduce_kernel", "multimem", "symmetric_memory", "PtoP")

COPIES = ("gpu_memcpy", "gpu_memset")


@cache
def raw(folder, rank):
    [path] = [path for path in (SAMPLES / folder).glob("*.json.gz") if f"rank{rank}" in path.name]
    content = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)  # no float holds these times
    return [event for event in content["traceEvents"] if event.get("ph") == "X"]


def kind(event):
    if any(word in event["name"] for word in SPEAKS):
        return "comm"
    return "copy" if event["cat"] in COPIES else "compute"


def nanoseconds(time_us):
    return int(time_us * 1000)


def by_hand(events, low=None, high=None):
    """Nanoseconds in which compute runs, else communication, else a copy, else nothing: a sweep over all edges."""
    edges = []
    for event in events:
        if event.get("cat") not in ("kernel", *COPIES):
            continue
        start, end = nanoseconds(event["ts"]), nanoseconds(event["ts"]) + nanoseconds(event["dur"])
        edges += [(start, kind(event), 1), (end, kind(event), -1)]
    edges.sort()
    running = dict.fromkeys(("compute", "comm", "copy"), 0)
    spent = dict.fromkeys(("compute", "comm", "copy", "idle"), 0)
    low = edges[0][0] if low is None else low
    high = edges[-1][0] if high is None else high
    before = low
    for time, what, change in [*edges, (high, "copy", 0)]:
        upto = min(max(time, low), high)
        first = next((name for name in ("compute", "comm", "copy") if running[name]), "idle")
        spent[first] += upto - before
        before = upto
        running[what] += change
    return spent


@pytest.mark.parametrize(("folder", "ranks"), CAPTURES)
def test_whole_captures(folder, ranks):
    table = ta.breakdown(sample(folder)).to_frame().set_index("rank")
    for rank in range(ranks):
        spent, row = by_hand(raw(folder, rank)), table.loc[rank]
        assert row["compute_ns"] == spent["compute"]
        assert row["exposed_comm_ns"] == spent["comm"]
        assert row["exposed_copy_ns"] == spent["copy"]
        assert row["idle_ns"] == spent["idle"]
        assert row["window_ns"] == sum(spent.values())


def step_starts(events):
    """When the first operation that the host launched in each profiler step began, by hand."""
    steps = [
        event for event in events if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"
    ]
    calls = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            calls[event["args"]["correlation"]] = event["ts"]
    firsts = []
    for step in sorted(steps, key=lambda event: event["ts"]):
        end = step["ts"] + step["dur"]
        own = [
            nanoseconds(event["ts"])
            for event in events
            if event.get("cat") in ("kernel", *COPIES)
            and step["ts"] <= calls.get(event["args"]["correlation"], -1) < end
        ]
        firsts.append(min(own))
    return firsts


@pytest.mark.parametrize(("folder", "ranks"), CAPTURES)
def test_a_step_between_the_first_operations_of_two(folder, ranks):
    table = ta.steps(sample(folder)).to_frame()
    for rank in range(ranks):
        events = raw(folder, rank)
        starts = step_starts(events)
        assert len(starts) >= 2
        row = table[(table["rank"] == rank) & table["step"].notna()].sort_values("start_ns").iloc[0]
        assert row["window_ns"] == starts[1] - starts[0]
