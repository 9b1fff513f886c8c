"""What a Kineto file says outside its events: rank, process groups, devices, versions, time base."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from traceanalyzer.model import ProcessGroup


class _Group(msgspec.Struct, gc=False):
    pg_name: str = ""
    pg_desc: str = ""
    ranks: list[int] = []


class _Distributed(msgspec.Struct, gc=False):
    rank: int | None = None
    world_size: int | None = None
    pg_config: list[_Group] = []
    nccl_version: str | None = None


class _Device(msgspec.Struct, gc=False):
    id: int = -1
    name: str | None = None


class _Properties(msgspec.Struct, gc=False):
    distributed: _Distributed = msgspec.field(default_factory=_Distributed, name="distributedInfo")
    devices: list[_Device] = msgspec.field(default_factory=list, name="deviceProperties")
    trace_id: str | None = None
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")
    cuda_driver_version: int | None = None
    cuda_runtime_version: int | None = None
    pytorch_version: str | None = None


@dataclass(frozen=True, slots=True)
class Properties:
    """A file's properties; `None` and empty where it does not say.

    Attributes:
        base_ns: ns since the epoch that event times are relative to; 0 when they are absolute.
    """

    rank: int | None = None
    world_size: int | None = None
    groups: tuple[ProcessGroup, ...] = ()
    device_names: Mapping[int, str] = field(default_factory=dict)
    trace_id: str | None = None
    base_ns: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)


def properties(head: bytes, tail: bytes = b"") -> Properties:
    """Properties from the text before the events' array and after it.

    Text that is not whole JSON (a file cut at its end) gives what can be read of each property.
    """
    text = head.rstrip() + b"[]" + tail.rstrip()
    for candidate in (text, head.rstrip() + b"[]}"):
        try:
            return _public(msgspec.json.decode(candidate, type=_Properties, strict=False))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return _public(_Properties(base_ns=_base_ns(head)))


def _public(raw: _Properties) -> Properties:
    info = raw.distributed
    versions = {
        "cuda_driver": _cuda_version(raw.cuda_driver_version),
        "cuda_runtime": _cuda_version(raw.cuda_runtime_version),
        "nccl": info.nccl_version,
        "pytorch": raw.pytorch_version,
    }
    return Properties(
        rank=info.rank,
        world_size=info.world_size,
        groups=tuple(ProcessGroup(g.pg_name, g.pg_desc, tuple(g.ranks)) for g in info.pg_config),
        device_names={device.id: device.name for device in raw.devices if device.name},
        trace_id=raw.trace_id,
        base_ns=raw.base_ns,
        versions={name: version for name, version in versions.items() if version},
    )


def _cuda_version(number: int | None) -> str | None:
    """13000 is CUDA 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def _base_ns(head: Any) -> int:
    match = re.search(rb'"baseTimeNanoseconds"\s*:\s*(\d+)', head)
    return int(match[1]) if match else 0
