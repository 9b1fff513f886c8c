"""An XSpace file: its planes, and a rank for each GPU of them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from google.protobuf.message import DecodeError

from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.meaning.rows import LATEST_NS, RANKS
from traceanalyzer.model import RankMeta, RankTrace, make_trace
from traceanalyzer.model.schema import printable
from traceanalyzer.readers.base import DEVICE_NUMBER, DEVICE_ORDER, Header, RankHint
from traceanalyzer.readers.xplane import device, messages
from traceanalyzer.readers.xplane.device import comm_args, described, gpu_ops, modules, stats_of, text_of, value_of
from traceanalyzer.readers.xplane.messages import devices_of

_GPU_PLANE = re.compile(r"^/device:GPU:(\d{1,9})(?!\d)")

_OTHER_DEVICE = re.compile(r"^/device:(?!CUSTOM)(\w+):\d+")

_HOST_PLANES = ("/host:CPU", "/host:CUPTI", "/host:ROCTRACER", "/host:python-tracer")
"""Threads and what runs on them; files that the profiler did not finish keep API calls apart."""

_EPOCH_LEAST_NS = 10**18
"""A line whose times begin later is in times of day already."""


def peek(path: Path) -> Header:
    """When the capture began and ended, where the file says so; see `Reader.peek`."""
    space = _space(path)
    in_use = [number for number, plane in _gpu_planes(space, path).items() if any(line.events for line in plane.lines)]
    numbers = device_numbers(space, len(in_use))
    size, stop = _world_size(space, numbers), _stamp(space, "profile_stop_time")
    return Header(ranks=numbers, world_size=size, start_ns=_start_ns(space), end_ns=stop)


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """A rank for each GPU of the file, in order; see `Reader.read`."""
    space = _space(path)
    planes = _gpu_planes(space, path)
    start_ns = _start_ns(space) or 0
    devices = {number: gpu_ops(plane, rules, _offset_ns(plane, start_ns)) for number, plane in planes.items()}
    devices = {number: ops.reset_index(drop=True) for number, ops in devices.items() if len(ops)}
    if not devices:
        raise NotATraceError(f"{path}: no GPU operations; profile with host_tracer_level ≥ 1 and device tracing on")
    own = [(plane, _offset_ns(plane, start_ns)) for plane in space.planes if text_of(plane.name) in _HOST_PLANES]
    host = device.read_host(own)
    known, phases, in_loops = described(space)
    numbers = device_numbers(space, len(devices))
    ranks = numbers or tuple(range(hint.rank, hint.rank + len(devices)))
    world_size = _world_size(space, numbers)
    all_ops = pd.concat(devices.values())
    calls = device.api_calls(host, set(all_ops["correlation"]) - {-1})
    for index, (number, ops) in enumerate(devices.items()):
        others = set(all_ops["correlation"]) - set(ops["correlation"]) - {-1}
        of_device = _of_device(host, ops, others)
        own_calls = calls.loc[calls.index.intersection(of_device.index)]
        launched = device.launches(own_calls, ops, phases, in_loops)
        source = DEVICE_NUMBER if numbers else DEVICE_ORDER if len(devices) > 1 else hint.source
        meta = RankMeta(
            rank=ranks[index],
            rank_source=source,
            files=(printable(path.name),),
            format="xplane",
            world_size=world_size,
            device=number,
            device_name=_text(stats_of(planes[number]).get("gpu_device_name")),
            device_bytes=_number(stats_of(planes[number]).get("memory_size")),
            capture_start_ns=_start_ns(space),
            capture_end_ns=_stamp(space, "profile_stop_time"),
            notes=()
            if len(devices) == 1
            else (f"One process drives {len(devices)} GPUs: what its other threads do is shown with each.",),
        )
        yield make_trace(
            meta,
            process_ops=all_ops["correlation"],
            rules=rules,
            gpu_ops=ops,
            api_calls=own_calls,
            host_ops=device.host_ops(launched),
            ranges=device.ranges(of_device, calls, launched),
            frames=device.frames(of_device),
            comm_args=comm_args(ops, known, ranks, index, is_whole_job=bool(numbers)),
        )


def device_numbers(space: Any, count: int) -> tuple[int, ...] | None:
    """The numbers in the whole job of the GPUs that the file holds, in order; `None` where it does not say.

    Args:
        space: the file.
        count: how many GPUs it holds. Numbers of more or fewer cannot be given to them.
    """
    found = set()
    for plane in space.planes:
        keys = {entry.key for entry in plane.stat_metadata if entry.value.name == b"global_device_id"}
        for line in plane.lines if keys else ():
            for event in line.events:
                found |= {value_of(stat, {}) for stat in event.stats if stat.metadata_id in keys}
    numbers = tuple(sorted(one for one in found if isinstance(one, int) and 0 <= one < RANKS))
    return numbers if len(numbers) == count and count else None


def _world_size(space: Any, numbers: tuple[int, ...] | None) -> int | None:
    """Of the program on most devices, where the file says which of them are its own."""
    sizes = [len(devices_of(proto)) for _, proto in modules(space)] if numbers else []
    size = max(sizes, default=0)
    return size if numbers and size > max(numbers) else None


def _space(path: Path) -> Any:
    space = messages.space()
    try:
        space.ParseFromString(path.read_bytes())
    except OSError as error:
        raise NotATraceError(f"{path}: cannot be read ({error.strerror})") from error
    except DecodeError as error:
        raise NotATraceError(f"{path}: no XSpace message, or a damaged one ({error})") from error
    return space


def _gpu_planes(space: Any, path: Path) -> dict[int, Any]:
    found = {int(match[1]): plane for plane in space.planes if (match := _GPU_PLANE.match(text_of(plane.name)))}
    if not found:
        other = next((match[1] for plane in space.planes if (match := _OTHER_DEVICE.match(text_of(plane.name)))), None)
        what = (
            f"a capture of {other}s, which are not read: only GPUs are"
            if other
            else "no plane of a GPU: the program ran on CPUs alone, or the profiler could not trace its GPUs"
        )
        raise NotATraceError(f"{path}: {what}")
    return dict(sorted(found.items()))


def _stamp(space: Any, name: str) -> int | None:
    for plane in space.planes:
        if text_of(plane.name) == "Task Environment":
            value = stats_of(plane).get(name)
            return value if isinstance(value, int) and 0 < value <= LATEST_NS else None
    return None


def _start_ns(space: Any) -> int | None:
    return _stamp(space, "profile_start_time")


def _offset_ns(plane: Any, start_ns: int) -> int:
    """What makes times of day of the plane's: nothing where they are such, else the profile's start."""
    first = min((line.timestamp_ns for line in plane.lines), default=0)
    return 0 if first > _EPOCH_LEAST_NS else start_ns


def _of_device(host: pd.DataFrame, ops: pd.DataFrame, others: set[int]) -> pd.DataFrame:
    """The host's events without the threads that launch on other GPUs alone: XLA has one for each GPU."""
    launches_here = set(host.loc[host["correlation"].isin(ops["correlation"]), "thread"])
    launches_there = set(host.loc[host["correlation"].isin(others), "thread"])
    return host[~host["thread"].isin(launches_there - launches_here)]


def _text(value: Any) -> str | None:
    return printable(value) if isinstance(value, str) and value else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 < value <= LATEST_NS else None
