"""What a Kineto file says outside its events: rank, process groups, devices, versions, time base."""

import json
import re
from contextlib import suppress
from typing import Annotated, Any, TypeAlias

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


class Device(msgspec.Struct, gc=False):
    """A GPU that the process saw."""

    id: _Number | None = None
    name: str | None = None
    numSms: Annotated[int, msgspec.Meta(ge=1, le=2**16)] | None = None  # noqa: N815 - the format's name
    totalGlobalMem: Annotated[int, msgspec.Meta(ge=0, le=2**50)] | None = None  # noqa: N815 - the format's name


_OLD_DEVICES = "computeProperties"
"""What PyTorch 1.8 calls `deviceProperties`."""

_JSON = json.JSONDecoder(strict=False)

_JOB = "distributedInfo"
"""Holds what is of the job."""

_OF_JOB = ("rank", "world_size", "pg_config", "nccl_version")


class Properties(msgspec.Struct, frozen=True):
    """A file's properties; `None` and empty where it does not say.

    Attributes:
        base_ns: ns since the epoch that event times are relative to; 0 when they are absolute.
    """

    rank: _Rank | None = None
    world_size: _Rank | None = None
    pg_config: list[_Group] = []
    nccl_version: str | None = None
    devices: list[Device] = msgspec.field(default_factory=list, name="deviceProperties")
    trace_id: str | None = None
    base_ns: Annotated[int, msgspec.Meta(ge=0, le=LATEST_NS)] = msgspec.field(default=0, name="baseTimeNanoseconds")
    cuda_driver_version: _Number | None = None
    cuda_runtime_version: _Number | None = None
    pytorch_version: str | None = None
    hostname: str | None = None
    host_name: str | None = None

    @property
    def host(self) -> str | None:
        """The machine's name."""
        return self.hostname or self.host_name

    @property
    def groups(self) -> tuple[ProcessGroup, ...]:
        """The job's process groups."""
        return tuple(ProcessGroup(each.pg_name, each.pg_desc, _ranks(each.ranks)) for each in self.pg_config)

    @property
    def versions(self) -> dict[str, str]:
        """Of libraries, by their names."""
        versions = {
            "cuda_driver": _cuda_version(self.cuda_driver_version),
            "cuda_runtime": _cuda_version(self.cuda_runtime_version),
            "nccl": self.nccl_version,
            "pytorch": self.pytorch_version,
        }
        return {name: version for name, version in versions.items() if version}

    def device(self, number: int | None) -> Device:
        """The GPU of a number in events; of one that no GPU has (ROCm's agents) the first, if all are alike."""
        kinds = {(device.name, device.numSms, device.totalGlobalMem) for device in self.devices}
        found = [device for device in self.devices if device.id == number] or self.devices[: len(kinds) == 1]
        return Device() if number is None or not found else found[0]


def properties(head: bytes, tail: bytes = b"") -> Properties:
    """Properties from the text before the events' array and after it, each by itself: an odd one costs no other."""
    text = (head + b"\n" + tail).decode(errors="replace")
    fields = {field.encode_name: field for field in msgspec.structs.fields(Properties)}
    names = (*(name for name in fields if name not in _OF_JOB), _JOB, _OLD_DEVICES)
    found = {name: value for name in names if (value := _value(text, name)) is not None}
    found.setdefault("deviceProperties", found.pop(_OLD_DEVICES, []))
    info = found.pop(_JOB, None)
    found |= {name: info[name] for name in _OF_JOB if name in info} if isinstance(info, dict) else {}
    kept = {}
    for name, value in found.items():
        with suppress(msgspec.ValidationError, UnicodeEncodeError):  # halves of characters, too
            kept[fields[name].name] = msgspec.convert(value, fields[name].type, strict=False)
    return Properties(**kept)


def _value(text: str, name: str) -> Any:
    """The value that follows the first key of this name; `None` when it cannot be read."""
    key = re.search(rf'"{name}"\s*:\s*', text)
    try:
        return _JSON.raw_decode(text, key.end())[0] if key else None
    except (ValueError, RecursionError):
        return None


def _ranks(ranks: list[int] | str) -> tuple[int, ...]:
    """A group's ranks; none where the list of them is cut."""
    if not isinstance(ranks, str):
        return tuple(ranks)
    return () if CUT_LIST in ranks else tuple(int(number) for number in re.findall(r"\d{1,9}", ranks))


def _cuda_version(number: int | None) -> str | None:
    """13000 is CUDA 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None
