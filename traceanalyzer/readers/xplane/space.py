"""An XSpace file: its planes, and a rank for each GPU of them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankMeta, RankTrace, make_trace
from traceanalyzer.model.schema import printable
from traceanalyzer.readers.base import DEVICE_ORDER, Header, RankHint
from traceanalyzer.readers.xplane import host as host_tables
from traceanalyzer.readers.xplane import messages
from traceanalyzer.readers.xplane.device import gpu_ops
from traceanalyzer.readers.xplane.events import integers, stats_of, text_of
from traceanalyzer.readers.xplane.hlo import Collective, collectives, operation

_GPU_PLANE = re.compile(r"^/device:GPU:(\d{1,9})(?!\d)")

_OTHER_DEVICE = re.compile(r"^/device:(?!CUSTOM)(\w+):\d+")

_HOST_PLANES = ("/host:CPU", "/host:CUPTI", "/host:ROCTRACER", "/host:python-tracer")
"""Threads and what runs on them; files that the profiler did not finish keep API calls apart."""

_LATEST_NS = 4 * 10**18

_EPOCH_LEAST_NS = 10**18
"""A line whose times begin later is in times of day already."""


def peek(path: Path) -> Header:
    """When the capture began, where the file says so; see `Reader.peek`."""
    space = _space(path)
    _gpu_planes(space, path)
    return Header(start_ns=_start_ns(space))


def ended_ns(path: Path) -> int | None:
    """When the capture ended, where the file says so; see `Reader.ended_ns`."""
    return _stamp(_space(path), "profile_stop_time")


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
    host = host_tables.read_host(own)
    known = _collectives(space)
    all_ops = pd.concat(devices.values())
    calls = host_tables.api_calls(host)
    for index, (number, ops) in enumerate(devices.items()):
        others = set(all_ops["correlation"]) - set(ops["correlation"]) - {-1}
        of_device = _of_device(host, ops, others)
        own_calls = calls.loc[calls.index.intersection(of_device.index)]
        launched = host_tables.launches(own_calls, ops)
        yield make_trace(
            _meta(path, hint, index, number, len(devices), _start_ns(space), _stamp(space, "profile_stop_time")),
            process_ops=all_ops["correlation"],
            gpu_ops=ops,
            api_calls=own_calls,
            host_ops=host_tables.host_ops(launched),
            ranges=host_tables.ranges(of_device, launched),
            frames=host_tables.frames(of_device),
            comm_args=_comm_args(ops, known, list(planes).index(number), range(hint.rank, hint.rank + len(planes))),
        )


def _space(path: Path) -> Any:
    space = messages.space()
    try:
        space.ParseFromString(path.read_bytes())
    except OSError as error:
        raise NotATraceError(f"{path}: cannot be read ({error.strerror})") from error
    except Exception as error:  # protobuf's own error, whose module is there only with protobuf
        raise NotATraceError(f"{path}: no XSpace message, or a damaged one ({error})") from error
    return space


def _gpu_planes(space: Any, path: Path) -> dict[int, Any]:
    found = {int(match[1]): plane for plane in space.planes if (match := _GPU_PLANE.match(text_of(plane.name)))}
    if not found:
        other = next((match[1] for plane in space.planes if (match := _OTHER_DEVICE.match(text_of(plane.name)))), None)
        what = f"a capture of {other}s, which are not read: only GPUs are" if other else "no plane of a GPU"
        raise NotATraceError(f"{path}: {what}")
    return dict(sorted(found.items()))


def _stamp(space: Any, name: str) -> int | None:
    for plane in space.planes:
        if text_of(plane.name) == "Task Environment":
            value = stats_of(plane).get(name)
            return value if isinstance(value, int) and 0 < value <= _LATEST_NS else None
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


def _collectives(space: Any) -> dict[tuple[str, str], Collective]:
    """Collectives by module (`jit_step`, and `jit_step(15)` with its program's number) and instruction."""
    found = {}
    for plane in space.planes:
        keys = {entry.key for entry in plane.stat_metadata if entry.value.name in (b"hlo_proto", b"Hlo Proto")}
        for entry in plane.event_metadata if keys else ():
            for stat in entry.value.stats:
                if stat.metadata_id in keys and stat.bytes_value:
                    module = (entry.value.name or entry.value.display_name).decode(errors="replace")
                    found.update({(module, name): one for name, one in _of_module(stat.bytes_value)})
    return found


def _of_module(raw: bytes) -> list[tuple[str, Collective]]:
    """A module's collectives; none of one that is damaged: its kernels are told by their names then."""
    proto = messages.hlo()
    try:
        proto.ParseFromString(raw)
        return list(collectives(proto))
    except Exception:  # noqa: BLE001 - protobuf's own error, whose module is there only with protobuf
        return []


def _comm_args(ops: pd.DataFrame, known: dict[tuple[str, str], Collective], replica: int, ranks: range) -> pd.DataFrame:
    """Arguments of communication kernels from the instruction that each carries out.

    Args:
        ops: of one GPU.
        known: collectives by module and instruction.
        replica: the GPU's place among the file's.
        ranks: of the file's GPUs.
    """
    rows = np.flatnonzero((ops["kind"] == "comm").to_numpy() & ops["hlo_op"].notna().to_numpy())
    held = ops.iloc[rows]
    wanted = list(zip(held["hlo_module"].astype(str), held["program_id"], held["hlo_op"].astype(str), strict=True))
    found = [known.get((f"{module}({number})", name)) or known.get((module, name)) for module, number, name in wanted]
    groups = [one.groups if one else () for one in found]
    # A group's members are ranks only where this file holds the GPUs of all of them.
    is_here = [bool(own) and max(map(max, own)) < len(ranks) for own in groups]
    mine = [next((group for group in own if replica in group), None) for own in groups]
    members = [
        ",".join(str(ranks[one]) for one in group) if here and group else None
        for group, here in zip(mine, is_here, strict=True)
    ]
    size = [len(own[0]) if own and len({*map(len, own)}) == 1 else None for own in groups]
    return pd.DataFrame(
        {
            "gpu_op": rows,
            "start_ns": held["start_ns"].to_numpy(),
            "end_ns": held["end_ns"].to_numpy(),
            "thread": -1,
            "collective": [
                one.name if one else operation(name) for one, (_, _, name) in zip(found, wanted, strict=True)
            ],
            "group_size": pd.array(size, dtype="Int64"),
            "group": pd.Series(members, dtype="object"),
            "group_ranks": pd.Series(members, dtype="object"),
            "dtype": [one.dtype if one else None for one in found],
            "size_bytes": integers(pd.Series([one.size_bytes if one else None for one in found], dtype="object")).array,
        }
    )


def _meta(
    path: Path, hint: RankHint, index: int, device: int, count: int, start_ns: int | None, end_ns: int | None
) -> RankMeta:
    shared = () if count == 1 else (f"One process drives {count} GPUs: what its other threads do is shown with each.",)
    return RankMeta(
        rank=hint.rank + index,
        rank_source=hint.source if count == 1 else DEVICE_ORDER,
        files=(printable(path.name),),
        format="xplane",
        device=device,
        capture_start_ns=start_ns,
        capture_end_ns=end_ns,
        notes=shared,
    )
