"""The arguments of an operator's call as a trace records them, and the bytes that they hold."""

import json
from functools import lru_cache
from math import prod
from typing import Any

from msgspec import Struct

from traceanalyzer.kinds import dtype_bytes

Shape = tuple[int, ...]

MOST_CALLS = 16_384
"""Of distinct ones are remembered: the ranks of a job make the same."""


class Call(Struct, frozen=True):
    """The recorded arguments of a call: a shape for each tensor, nested for lists of tensors, empty for the rest."""

    shapes: tuple[Any, ...]
    dtypes: tuple[str, ...]
    values: tuple[str, ...] = ()

    @classmethod
    @lru_cache(MOST_CALLS)
    def parse(cls, shapes: str | None, dtypes: str | None, arguments: str | None) -> "Call | None":
        """From JSON texts as a trace has them; `None` when they are absent or damaged."""
        try:
            dims, types = json.loads(shapes or ""), json.loads(dtypes or "[]")
            values = json.loads(arguments or "[]")
        except json.JSONDecodeError:
            return None
        if not all(isinstance(part, list) for part in (dims, types, values)):
            return None
        return cls(tuple(map(_frozen, dims)), tuple(map(str, types)), tuple(map(str, values)))

    def shape(self, position: int, ndim: int | None = None) -> Shape:
        """Shape of an argument.

        Raises:
            LookupError: it is no tensor, or not of that many dimensions.
        """
        shape: Shape = self.shapes[position]
        if not shape or not all(isinstance(size, int) for size in shape) or len(shape) != (ndim or len(shape)):
            raise LookupError(position)
        return shape

    def value(self, position: int) -> Any:
        """Value of an argument that is no tensor, where it was recorded.

        Raises:
            LookupError: it was not.
        """
        try:
            return json.loads(self.values[position].lower())
        except json.JSONDecodeError as error:
            raise LookupError(position) from error

    def tensors(self) -> list[tuple[Shape, str]]:
        """Shape and element type of each tensor argument; a list of tensors has no element types."""
        pairs = zip(self.shapes, self.dtypes, strict=False)
        return [(shape, dtype) for shape, dtype in pairs if shape and isinstance(shape[0], int)]

    @property
    def dtype(self) -> str | None:
        """Element type of the first tensor of floating point, else of the first tensor."""
        types = [dtype for _, dtype in self.tensors()]
        return next((t for t in types if not t.startswith(("long", "int", "bool"))), types[0] if types else None)


def size(shape: Shape, dtype: str | None) -> int | None:
    """Bytes of a tensor; `None` when the element type is unknown."""
    element = dtype_bytes(dtype) or _C_TYPES.get(dtype or "")
    return None if element is None else prod(shape) * element


def moved(call: Call, *outputs: Shape, skip: int = 0) -> int | None:
    """Bytes of the tensor arguments after the first `skip`, and of outputs of the call's element type."""
    parts = [size(shape, dtype) for shape, dtype in call.tensors()[skip:]]
    parts += [size(shape, call.dtype) for shape in outputs]
    return None if None in parts or not parts else sum(part for part in parts if part is not None)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


_C_TYPES = {"long int": 8, "signed char": 1, "unsigned char": 1, "short int": 2, "c10::complex<float>": 8}
_C_TYPES |= {f"OpaqueType<{count}u>": count for count in (1, 2, 4, 8, 16)}  # a kernel that only moves elements
