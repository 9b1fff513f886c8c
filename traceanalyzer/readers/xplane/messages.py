"""The messages of an XSpace file: XLA's `xplane.proto`, and of its `hlo.proto` what collectives need.

Built when the first file is read. Only the fields that are used are declared: protobuf keeps the others aside.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from traceanalyzer.errors import NotATraceError

_Field = tuple[str, int, str]
"""Name, number, and type: a scalar or a message of this file, `*` before it for repeated."""

_PACKAGE = "traceanalyzer.xplane"

_FILE: dict[str, Sequence[_Field]] = {
    "XSpace": (("planes", 1, "*XPlane"),),
    "XPlane": (
        ("name", 2, "bytes"), ("lines", 3, "*XLine"), ("event_metadata", 4, "*EventEntry"),
        ("stat_metadata", 5, "*StatEntry"), ("stats", 6, "*XStat"),
    ),
    "EventEntry": (("key", 1, "int64"), ("value", 2, "XEventMetadata")),
    "StatEntry": (("key", 1, "int64"), ("value", 2, "XStatMetadata")),
    "XLine": (("id", 1, "int64"), ("name", 2, "bytes"), ("timestamp_ns", 3, "int64"), ("events", 4, "*XEvent")),
    "XEvent": (
        ("metadata_id", 1, "int64"), ("offset_ps", 2, "int64"), ("duration_ps", 3, "int64"), ("stats", 4, "*XStat"),
    ),
    "XStat": (
        ("metadata_id", 1, "int64"), ("double_value", 2, "double"), ("uint64_value", 3, "uint64"),
        ("int64_value", 4, "int64"), ("str_value", 5, "bytes"), ("bytes_value", 6, "bytes"), ("ref_value", 7, "uint64"),
    ),
    "XEventMetadata": (("name", 2, "bytes"), ("display_name", 4, "bytes"), ("stats", 5, "*XStat")),
    "XStatMetadata": (("name", 2, "bytes"),),
    "HloProto": (("module", 1, "HloModule"),),
    "HloModule": (
        ("name", 1, "bytes"), ("computations", 3, "*HloComputation"), ("device_assignment", 15, "DeviceAssignment"),
    ),
    "DeviceAssignment": (("computations", 3, "*ComputationDevices"),),
    "ComputationDevices": (("devices", 1, "*int64"),),
    "HloComputation": (("instructions", 2, "*HloInstruction"), ("id", 5, "int64")),
    "HloInstruction": (
        ("name", 1, "bytes"), ("opcode", 2, "bytes"), ("shape", 3, "HloShape"), ("metadata", 7, "HloMetadata"),
        ("called", 38, "*int64"), ("replica_groups", 49, "*ReplicaGroup"),
        ("device_list", 87, "DeviceList"), ("mesh_axes", 93, "MeshAxesGroups"),
    ),
    "HloMetadata": (("op_name", 2, "bytes"),),
    "HloShape": (("element_type", 2, "int32"), ("dimensions", 3, "*int64"), ("tuple_shapes", 4, "*HloShape")),
    "ReplicaGroup": (("replica_ids", 1, "*int64"),),
    "DeviceList": (("replica_groups", 1, "*ReplicaGroup"), ("iota", 2, "IotaGroups")),
    "MeshAxesGroups": (("mesh", 1, "Mesh"), ("axes", 2, "*AxisOfMesh")),
    "Mesh": (("axes", 1, "*MeshAxis"), ("device_ids", 2, "*int64")),
    "MeshAxis": (("name", 1, "bytes"), ("size", 2, "int64")),
    "AxisOfMesh": (("axis", 1, "int64"), ("part", 2, "PartOfAxis")),
    "PartOfAxis": (("before", 1, "int64"), ("size", 2, "int64")),
    "IotaGroups": (("groups", 1, "int64"), ("devices", 2, "int64"), ("dims", 3, "*int64"), ("order", 4, "*int32")),
}  # fmt: skip
"""Texts are read as bytes, as they need not be UTF-8: `events.text_of` makes words of them."""


def space() -> Any:
    """An empty XSpace message; see `_pool`."""
    return _new("XSpace")


def hlo() -> Any:
    """An empty HloProto message; see `_pool`."""
    return _new("HloProto")


def _new(name: str) -> Any:
    pool, message_factory = _pool()
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))()


@lru_cache(maxsize=1)
def _pool() -> tuple[Any, Any]:
    """The declared messages, and what makes classes of them.

    Raises:
        NotATraceError: protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415 - named when missing
    except ModuleNotFoundError as error:
        raise NotATraceError(
            ".xplane.pb files are read with protobuf, which is missing: pip install protobuf"
        ) from error
    file = descriptor_pb2.FileDescriptorProto(name="traceanalyzer/xplane.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _FILE.items():
        message = file.message_type.add(name=name)
        for field, number, type_ in fields:
            message.field.add(name=field, number=number, **_type(type_, descriptor_pb2.FieldDescriptorProto))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool, message_factory


def _type(text: str, field: Any) -> dict[str, Any]:
    label = field.LABEL_REPEATED if text.startswith("*") else field.LABEL_OPTIONAL
    name = text.lstrip("*")
    if name in _FILE:
        return {"label": label, "type": field.TYPE_MESSAGE, "type_name": f".{_PACKAGE}.{name}"}
    return {"label": label, "type": getattr(field, f"TYPE_{name.upper()}")}
