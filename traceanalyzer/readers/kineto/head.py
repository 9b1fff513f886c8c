"""What a Kineto file says outside its events: rank, process groups, devices, versions, time base."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from traceanalyzer.kinds import CUT_LIST
from traceanalyzer.meaning.rows import LATEST_NS, RANKS
from traceanalyzer.model import ProcessGroup

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


_Rank: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=RANKS)]


class _Group(msgspec.Struct, gc=False):
    pg_name: str = ""
    pg_desc: str = ""
    ranks: list[_Rank] | str = []  # a text where Kineto itself wrote it: `[0, 1]`, or `[0, 1, ..., 63]`


class _Distributed(msgspec.Struct, gc=False):
    rank: _Rank | None = None
    world_size: _Rank | None = None
    pg_config: list[_Group] = []
    nccl_version: str | None = None


class Device(msgspec.Struct, gc=False):
    """A GPU that the process saw."""

    id: _Number | None = None
    name: str | None = None
    numSms: Annotated[int, msgspec.Meta(ge=1, le=2**16)] | None = None  # noqa: N815 - the format's name
    totalGlobalMem: Annotated[int, msgspec.Meta(ge=0, le=2**50)] | None = None  # noqa: N815 - the format's name


class _Properties(msgspec.Struct, gc=False):
    deviceProperties: list[Device] = []  # noqa: N815 - the format's name
    trace_id: str | None = None
    baseTimeNanoseconds: Annotated[int, msgspec.Meta(ge=0, le=LATEST_NS)] = 0  # noqa: N815
    cuda_driver_version: _Number | None = None
    cuda_runtime_version: _Number | None = None
    pytorch_version: str | None = None
    hostname: str | None = None
    host_name: str | None = None


_OLD_DEVICES = "computeProperties"
"""What PyTorch 1.8 calls `deviceProperties`."""

_JSON = json.JSONDecoder(strict=False)

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Properties:
    """A file's properties; `None` and empty where it does not say.

    Attributes:
        base_ns: ns since the epoch that event times are relative to; 0 when they are absolute.
    """

    rank: int | None = None
    world_size: int | None = None
    groups: tuple[ProcessGroup, ...] = ()
    devices: tuple[Device, ...] = ()
    trace_id: str | None = None
    host: str | None = None
    base_ns: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)

    def device(self, number: int | None) -> Device:
        """The GPU of a number in events; of one that no GPU has (ROCm's agents) the first, if all are alike."""
        kinds = {(device.name, device.numSms, device.totalGlobalMem) for device in self.devices}
        found = [device for device in self.devices if device.id == number] or self.devices[: len(kinds) == 1]
        return Device() if number is None or not found else found[0]


def properties(head: bytes, tail: bytes = b"") -> Properties:
    """Properties from the text before the events' array and after it, each by itself: an odd one costs no other."""
    text = (head + b"\n" + tail).decode(errors="replace")
    names = (*_Properties.__struct_fields__, "distributedInfo", _OLD_DEVICES)
    found = {name: value for name in names if (value := _value(text, name)) is not None}
    found.setdefault("deviceProperties", found.pop(_OLD_DEVICES, []))
    info = found.pop("distributedInfo", None)
    return _public(_fitting(found, _Properties), _fitting(info if isinstance(info, dict) else {}, _Distributed))


def _value(text: str, name: str) -> Any:
    """The value that follows the first key of this name; `None` when it cannot be read."""
    key = re.search(rf'"{name}"\s*:\s*', text)
    try:
        return _JSON.raw_decode(text, key.end())[0] if key else None
    except (ValueError, RecursionError):
        return None


def _fitting(values: dict[str, Any], type_: type[_Struct]) -> _Struct:
    """A struct of the values that are of the type that they should be."""
    kept = {}
    for name, value in values.items():
        with suppress(msgspec.ValidationError, UnicodeEncodeError):  # halves of characters, too
            kept[name] = getattr(msgspec.convert({name: value}, type_, strict=False), name, None)
    return type_(**{name: value for name, value in kept.items() if name in type_.__struct_fields__})


def _public(raw: _Properties, info: _Distributed) -> Properties:
    versions = {
        "cuda_driver": _cuda_version(raw.cuda_driver_version),
        "cuda_runtime": _cuda_version(raw.cuda_runtime_version),
        "nccl": info.nccl_version,
        "pytorch": raw.pytorch_version,
    }
    return Properties(
        rank=info.rank,
        world_size=info.world_size,
        groups=tuple(ProcessGroup(g.pg_name, g.pg_desc, _ranks(g.ranks)) for g in info.pg_config),
        devices=tuple(raw.deviceProperties),
        trace_id=raw.trace_id,
        host=raw.hostname or raw.host_name,
        base_ns=raw.baseTimeNanoseconds,
        versions={name: version for name, version in versions.items() if version},
    )


def _ranks(ranks: list[int] | str) -> tuple[int, ...]:
    """A group's ranks; none where the list of them is cut."""
    if not isinstance(ranks, str):
        return tuple(ranks)
    return () if CUT_LIST in ranks else tuple(int(number) for number in re.findall(r"\d{1,9}", ranks))


def _cuda_version(number: int | None) -> str | None:
    """13000 is CUDA 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None
