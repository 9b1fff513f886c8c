"""Messages of an XSpace file and of the HLO modules in it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, message_factory

from traceanalyzer.kinds import POINT_TO_POINT, collective, tensor_bytes

# The messages of an XSpace file, as `xplane.proto` beside this module declares them.


_PACKAGE = "traceanalyzer.xplane"


def space() -> Any:
    """An empty XSpace message."""
    return _classes()[f"{_PACKAGE}.XSpace"]()


def hlo() -> Any:
    """An empty HloProto message."""
    return _classes()[f"{_PACKAGE}.HloProto"]()


@cache
def _classes() -> dict[str, Any]:
    """The declared messages."""
    file = descriptor_pb2.FileDescriptorProto(name="traceanalyzer/xplane.proto", package=_PACKAGE, syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    declared = dict(
        re.findall(r"message (\w+) \{(.*?)\}", Path(__file__).with_name("xplane.proto").read_text(), re.DOTALL)
    )
    for message, fields in declared.items():
        made = file.message_type.add(name=message)
        for label, of, name, number in re.findall(r"(\w+) (\w+) (\w+) = (\d+);", fields):
            field = made.field.add(name=name, number=int(number), label=f"LABEL_{label.upper()}")
            if of in declared:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{of}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{of.upper()}")
    return message_factory.GetMessages([file])


# What a compiled module holds, by the HLO that the profiler keeps: collectives with their members, phases, loops.


_ELEMENTS = {
    1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64",
    10: "float16", 11: "float32", 12: "float64", 15: "complexfloat", 16: "bfloat16", 18: "complexdouble",
    19: "float8_e5m2", 20: "float8_e4m3fn",
}  # fmt: skip
"""XLA's element types by number."""

_BETWEEN_DEVICES = ("all-", "reduce-scatter", "ragged-all-to-all", "collective-", "send", "recv")
"""Beginnings of opcodes that communicate; `broadcast` and `reduce` stay on the device."""


_CALLERS = ("async-start", "fusion")

_UNNAMED_AXIS = re.compile(r"axis_\d+")
"""What XLA calls an axis that the program did not name."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective instruction.

    Attributes:
        name: the field's name of the operation.
        groups: devices that exchange with each other, by their numbers in the whole job; empty where the module does
            not say.
        dtype: element type, when all its arrays have one.
        size_bytes: of the full array.
        axes: names of the mesh's axes that its groups lie along, where the program gave them such.
    """

    name: str
    groups: tuple[tuple[int, ...], ...]
    dtype: str | None
    size_bytes: int | None
    axes: tuple[str, ...] = ()


def operation(instruction: str) -> str | None:
    """Collective by an instruction's name: `all-reduce-start.3`; a permute is a send and a receive."""
    plain = instruction.replace("-", "_")
    return "send_recv" if plain.startswith("collective_permute") else collective(plain)


def collectives(proto: Any) -> Iterator[tuple[str, Collective]]:
    """Each collective of a module, by its instruction's name, and by that of what starts or fuses it.

    Of `async-start` and of a fusion a kernel may bear the name, while the collective stands in the computation that
    they call.
    """
    devices = devices_of(proto)
    inside: dict[int, list[Collective]] = {}
    callers = []
    for computation in proto.module.computations:
        for instruction in computation.instructions:
            opcode = instruction.opcode.decode(errors="replace")
            name = operation(opcode) if opcode.startswith(_BETWEEN_DEVICES) else None
            if name is not None and not opcode.endswith("-done"):
                found = _described(name, opcode, instruction, devices)
                inside.setdefault(computation.id, []).append(found)
                yield instruction.name.decode(errors="replace"), found
            elif opcode in _CALLERS:
                callers.append(instruction)
    for instruction in callers:
        held = [one for called in instruction.called for one in inside.get(called, ())]
        if len(held) == 1:
            yield instruction.name.decode(errors="replace"), held[0]


def phases(proto: Any) -> Iterator[tuple[str, str]]:
    """`forward` or `backward` of each of a module's instructions that is of one, by its name."""
    for computation in proto.module.computations:
        for instruction in computation.instructions:
            phase = phase_of_path(instruction.metadata.op_name)
            if phase is not None:
                yield instruction.name.decode(errors="replace"), phase


def looped(proto: Any) -> Iterator[str]:
    """Names of the instructions that a module's loops run, at any depth: of such a run of the module has several."""
    of_number = {computation.id: computation for computation in proto.module.computations}
    reached: set[int] = set()
    waiting = [
        called
        for computation in proto.module.computations
        for instruction in computation.instructions
        if instruction.opcode == b"while"
        for called in instruction.called
    ]
    while waiting:
        number = waiting.pop()
        if number in reached or number not in of_number:
            continue
        reached.add(number)
        for instruction in of_number[number].instructions:
            waiting += instruction.called
            yield instruction.name.decode(errors="replace")


def phase_of_path(path: bytes) -> str | None:
    """`forward` or `backward`, by where JAX traced an instruction: `jit(step)/transpose(jvp(Block))/dot_general`.

    The transposed part of a differentiated function is its backward pass, with what is recomputed there; the rest of it
    the forward pass. What lies outside of it, such as the optimizer, is neither.
    """
    if b"jvp(" not in path:
        return None
    return "backward" if b"transpose(" in path else "forward"


def devices_of(proto: Any) -> tuple[int, ...]:
    """The devices that a module runs on, by their numbers in the whole job; empty where it does not say.

    In the order in which collectives count them: all partitions of the first replica, then of the next.
    """
    partitions = [tuple(one.devices) for one in proto.module.device_assignment.computations]
    return tuple(device for replica in zip(*partitions, strict=False) for device in replica)


def _described(name: str, opcode: str, instruction: Any, devices: tuple[int, ...]) -> Collective:
    groups = _on_devices(_groups(instruction), devices)
    if not groups and name not in POINT_TO_POINT:  # that of all is left out
        groups = (devices,) if devices else ()
    arrays = list(_arrays(_full(opcode, instruction.shape)))
    dtypes = {_ELEMENTS.get(array.element_type) for array in arrays}
    size = _size_bytes(arrays) if name in ("all_reduce", "all_gather", "all_to_all", "reduce_scatter") else None
    if name == "reduce_scatter" and size is not None:  # its shape is one replica's part
        size = size * len(groups[0]) if groups else None
    return Collective(name, groups, dtypes.pop() if len(dtypes) == 1 else None, size, _axes(instruction.mesh_axes))


def _axes(listed: Any) -> tuple[str, ...]:
    """Names of whole axes of the mesh; none where one has no name or is only a part."""
    axes = [listed.mesh.axes[one.axis].name for one in listed.axes if 0 <= one.axis < len(listed.mesh.axes)]
    names = tuple(name.decode(errors="replace") for name in axes)
    is_part = any(one.HasField("part") for one in listed.axes)
    return () if is_part or not all(names) or any(map(_UNNAMED_AXIS.fullmatch, names)) else names


def _full(opcode: str, shape: Any) -> Any:
    """The shape of the result: an all-gather that only starts has its operands before it."""
    is_start = opcode == "all-gather-start" and len(shape.tuple_shapes) == 2
    return shape.tuple_shapes[1] if is_start else shape


def _arrays(shape: Any) -> Iterator[Any]:
    if not shape.tuple_shapes:
        yield shape
    for part in shape.tuple_shapes:
        yield from _arrays(part)


def _size_bytes(arrays: list[Any]) -> int | None:
    sizes = [tensor_bytes(tuple(array.dimensions), _ELEMENTS.get(array.element_type)) for array in arrays]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) > 0 else None


def _groups(instruction: Any) -> tuple[tuple[int, ...], ...]:
    listed = instruction.replica_groups or instruction.device_list.replica_groups
    if listed:
        return tuple(tuple(group.replica_ids) for group in listed if group.replica_ids)
    if instruction.mesh_axes.mesh.axes:
        return _groups_of_mesh(instruction.mesh_axes)
    iota = instruction.device_list.iota
    if not iota.groups or prod(iota.dims) != iota.groups * iota.devices:
        return ()
    order = list(iota.order) or list(range(len(iota.dims)))
    ids = np.arange(prod(iota.dims)).reshape(tuple(iota.dims)).transpose(order).reshape(iota.groups, iota.devices)
    return tuple(tuple(row) for row in ids.tolist())


def _groups_of_mesh(listed: Any) -> tuple[tuple[int, ...], ...]:
    """Along the named axes of a mesh, or parts of such: one group for each place on all other axes."""
    sizes = [int(axis.size) for axis in listed.mesh.axes]
    count = prod(sizes)
    ids = np.array(listed.mesh.device_ids if len(listed.mesh.device_ids) == count else range(count), dtype=np.int64)
    parts: list[int] = []
    wanted: list[int] = []
    for number, size in enumerate(sizes):
        own = [one for one in listed.axes if one.axis == number]
        if any(one.HasField("part") for one in own):
            if len(own) > 1 or not 0 < own[0].part.before * own[0].part.size <= size:
                return ()
            before, part = own[0].part.before, own[0].part.size
            wanted.append(len(parts) + 1)
            parts += [before, part, size // (before * part)]
        else:
            wanted += [len(parts)] if own else []
            parts.append(size)
    if prod(parts) != count:
        return ()
    others = [axis for axis in range(len(parts)) if axis not in wanted]
    members = prod(parts[axis] for axis in wanted)
    rows = ids.reshape(parts).transpose(others + wanted).reshape(-1, members)
    return tuple(tuple(row) for row in rows.tolist())


def _on_devices(groups: tuple[tuple[int, ...], ...], devices: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Groups of places in the module's list of devices as those of devices; as they are where there is no list."""
    if not devices:
        return groups
    if any(not 0 <= one < len(devices) for group in groups for one in group):
        return ()
    return tuple(tuple(devices[one] for one in group) for group in groups)
