"""Where a GPU's time went, read from a capture's raw events by code that shares nothing with the package."""

import gzip
import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

Operation = tuple[int, int, str, object]
"""Start and end in ns, kind, and whatever says which launch it was."""

SPEAKS = ("nccl", "_shot_all_reduce_kernel", "multimem", "symmetric_memory", "PtoP")
"""What communicates in the captures that are read, told by hand."""

MOVES = ("gpu_memcpy", "gpu_memset")

PARTS = ("compute", "comm", "copy", "idle")


def split(operations: Iterable[Operation], low: int | None = None, high: int | None = None) -> dict[str, int]:
    """Nanoseconds in which compute runs, else communication, else a copy, else nothing: a sweep over all edges."""
    edges = [edge for start, end, kind, _ in operations for edge in ((start, kind, 1), (end, kind, -1))]
    edges.sort()
    running = dict.fromkeys(PARTS[:3], 0)
    spent = dict.fromkeys(PARTS, 0)
    low = edges[0][0] if low is None else low
    high = edges[-1][0] if high is None else high
    before = low
    for time, what, change in [*edges, (high, "copy", 0)]:
        upto = min(max(time, low), high)
        spent[next((name for name in PARTS[:3] if running[name]), "idle")] += upto - before
        before = upto
        running[what] += change
    return spent


def kineto_events(path: Path) -> list[dict[str, Any]]:
    """A PyTorch trace's events that last; times as decimals, as no float holds them."""
    content = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return [event for event in content["traceEvents"] if event.get("ph") == "X"]


def kineto(events: Iterable[dict[str, Any]]) -> list[Operation]:
    """The GPU's operations; the last value is their correlation."""
    return [
        (start, start + nanoseconds(event["dur"]), kind(event["name"], event["cat"]), event["args"]["correlation"])
        for event in events
        if event.get("cat") in ("kernel", *MOVES)
        for start in [nanoseconds(event["ts"])]
    ]


def nanoseconds(time_us: Decimal | int) -> int:
    return int(time_us * 1000)


def kind(name: str, category: str) -> str:
    if any(word in name for word in SPEAKS):
        return "comm"
    return "copy" if category in MOVES else "compute"


def step_windows(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Of all profiler's steps: from the later of its start and the earlier launches' last end, to where the next one begins.

    The last one ends at the later of its own end and its launches' last end. None without annotated steps.
    """
    steps = [
        event for event in events if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"
    ]
    if not steps:
        return []
    calls = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            calls[event["args"]["correlation"]] = event["ts"]
    operations = kineto(events)
    steps.sort(key=lambda event: event["ts"])
    begins = [_later(step["ts"], operations, calls, step["ts"]) for step in steps]
    end = steps[-1]["ts"] + steps[-1]["dur"]
    return list(pairwise([*begins, _later(end, operations, calls, end)]))


def _later(time_us: Decimal, operations: list[Operation], calls: dict[object, Decimal], before_us: Decimal) -> int:
    """A time in ns, or the last end of what was launched before one: what has no call here was launched before all."""
    return max([nanoseconds(time_us), *(one[1] for one in operations if calls.get(one[3], -1) < before_us)])


def rocprofv3(path: Path) -> list[Operation]:
    """Dispatches of rocprofv3's JSON; HIP fills and copies memory by kernels of its own."""
    (tool,) = json.loads(gzip.decompress(path.read_bytes()))["rocprofiler-sdk-tool"]
    names = {symbol["kernel_id"]: symbol["formatted_kernel_name"] for symbol in tool["kernel_symbols"]}
    found = []
    for record in tool["buffer_records"]["kernel_dispatch"]:
        name = names[record["dispatch_info"]["kernel_id"]]
        is_move = name.startswith(("__amd_rocclr_copyBuffer", "__amd_rocclr_fillBuffer"))
        found.append(
            (record["start_timestamp"], record["end_timestamp"], kind(name, MOVES[0] if is_move else "kernel"), None)
        )
    return found


def xplane(path: Path) -> dict[int, list[Operation]]:
    """Operations on the streams of each GPU of a JAX file, from the bytes of its messages."""
    devices = {}
    for plane in _messages(path.read_bytes(), 1):
        name = _text(plane, 2)
        if name.startswith("/device:GPU:"):
            devices[int(name.rsplit(":", 1)[1])] = list(_of_plane(plane))
    return devices


def _of_plane(plane: bytes) -> Iterator[Operation]:
    names = {}
    for entry in _messages(plane, 4):
        (told,) = _messages(entry, 2)
        names[_number(entry, 1)] = _text(told, 4) or _text(told, 2)
    for line in _messages(plane, 3):
        if not _text(line, 2).startswith("Stream"):
            continue
        base = _number(line, 3)
        for event in _messages(line, 4):
            name, start = names[_number(event, 1)], _number(event, 2)
            is_move = name.startswith(("Memcpy", "Memset", "__amd_rocclr_copyBuffer", "__amd_rocclr_fillBuffer"))
            end = start + _number(event, 3)
            yield base + _rounded(start), base + _rounded(end), kind(name, MOVES[0] if is_move else "kernel"), None


def _rounded(time_ps: int) -> int:
    return (time_ps + 500) // 1000


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a protobuf message's fields."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        number, how = divmod(varint(), 8)
        if how == 0:
            yield number, varint()
        else:
            length = varint() if how == 2 else {1: 8, 5: 4}[how]
            yield number, message[at : at + length]
            at += length


def _messages(message: bytes, number: int) -> list[bytes]:
    return [value for own, value in _fields(message) if own == number and isinstance(value, bytes)]


def _text(message: bytes, number: int) -> str:
    return next(iter(_messages(message, number)), b"").decode()


def _number(message: bytes, number: int) -> int:
    return next((value for own, value in _fields(message) if own == number and isinstance(value, int)), 0)
