"""Which collectives a compiled module holds, by the HLO that the profiler keeps: operation, members, size."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from traceanalyzer.kinds import collective

_ELEMENTS = {
    1: ("bool", 1), 2: ("int8", 1), 3: ("int16", 2), 4: ("int32", 4), 5: ("int64", 8), 6: ("uint8", 1),
    7: ("uint16", 2), 8: ("uint32", 4), 9: ("uint64", 8), 10: ("float16", 2), 11: ("float32", 4), 12: ("float64", 8),
    15: ("complexfloat", 8), 16: ("bfloat16", 2), 18: ("complexdouble", 16), 19: ("float8_e5m2", 1),
    20: ("float8_e4m3fn", 1),
}  # fmt: skip
"""XLA's element types by number: name, bytes."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective instruction.

    Attributes:
        name: the field's name of the operation.
        groups: replicas that exchange with each other; empty where the module does not say.
        dtype: element type, when all its arrays have one.
        size_bytes: of the full array.
    """

    name: str
    groups: tuple[tuple[int, ...], ...]
    dtype: str | None
    size_bytes: int | None


def operation(instruction: str) -> str | None:
    """Collective by an instruction's name: `all-reduce-start.3`; a permute is a send and a receive."""
    plain = instruction.replace("-", "_")
    return "send_recv" if plain.startswith("collective_permute") else collective(plain)


def collectives(proto: Any) -> Iterator[tuple[str, Collective]]:
    """Each collective of a module, by its instruction's name."""
    for computation in proto.module.computations:
        for instruction in computation.instructions:
            opcode = instruction.opcode.decode(errors="replace")
            name = operation(opcode)
            if name is not None and not opcode.endswith("-done"):
                yield instruction.name.decode(errors="replace"), _described(name, opcode, instruction)


def _described(name: str, opcode: str, instruction: Any) -> Collective:
    groups = _groups(instruction)
    arrays = list(_arrays(_full(opcode, instruction.shape)))
    dtypes = {_ELEMENTS.get(array.element_type) for array in arrays}
    element = dtypes.pop() if len(dtypes) == 1 else None
    size = _size_bytes(arrays) if name in ("all_reduce", "all_gather", "all_to_all", "reduce_scatter") else None
    if name == "reduce_scatter" and size is not None:  # its shape is one replica's part
        size = size * len(groups[0]) if groups else None
    return Collective(name, groups, element[0] if element else None, size)


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
    known = [_ELEMENTS.get(array.element_type) for array in arrays]
    if not arrays or None in known:
        return None
    return sum(
        int(prod(array.dimensions)) * element[1] for array, element in zip(arrays, known, strict=True) if element
    )


def _groups(instruction: Any) -> tuple[tuple[int, ...], ...]:
    listed = instruction.replica_groups or instruction.device_list.replica_groups
    if listed:
        return tuple(tuple(group.replica_ids) for group in listed if group.replica_ids)
    iota = instruction.device_list.iota
    if not iota.groups or prod(iota.dims) != iota.groups * iota.devices:
        return ()
    order = list(iota.order) or list(range(len(iota.dims)))
    ids = np.arange(prod(iota.dims)).reshape(tuple(iota.dims)).transpose(order).reshape(iota.groups, iota.devices)
    return tuple(tuple(row) for row in ids.tolist())
