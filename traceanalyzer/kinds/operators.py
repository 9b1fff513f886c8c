"""What operators' names and recorded arguments tell: which communicate, shapes, dtypes, bytes."""

import json
import re
from functools import lru_cache
from itertools import zip_longest
from math import prod
from typing import Any

from msgspec import Struct

from traceanalyzer.kinds.kernels import collective, speaks

# Element types: what people call one, its bytes, torch's name of it, and what else traces call it.


_ELEMENTS = """
fp64  |  8 | float64         | double
fp32  |  4 | float32         | float
fp16  |  2 | float16         | half
bf16  |  2 | bfloat16        |
int64 |  8 | int64           | long, long int
int32 |  4 | int32           | int
int16 |  2 | int16           | short, short int
int8  |  1 | int8            | char, signed char
uint8 |  1 | uint8           | byte, unsigned char
      |  8 | uint64          |
      |  4 | uint32          |
      |  2 | uint16          |
      |  1 | bool            |
      |  1 | float8_e4m3fn   |
      |  1 | float8_e5m2     |
      |  1 | float8_e4m3fnuz |
      |  1 | float8_e5m2fnuz |
      |  1 | float8_e8m0fnu  |
      |  4 | complex32       | complexhalf
      |  8 | complex64       | complexfloat, complex<float>
      | 16 | complex128      | complexdouble, complex<double>
      |  1 |                 | opaquetype<1u>
      |  2 |                 | opaquetype<2u>
      |  4 |                 | opaquetype<4u>
      |  8 |                 | opaquetype<8u>
      | 16 |                 | opaquetype<16u>
"""
"""Those of the last rows are of a kernel that only moves elements; people call by torch's name what has no other."""


class Element(Struct, frozen=True):
    """An element type: what people call it, and torch; empty where it has no such name."""

    name: str
    bytes: int
    torch: str


def _elements() -> dict[str, Element]:
    """By every name in small letters."""
    found: dict[str, Element] = {}
    for row in _ELEMENTS.strip().splitlines():
        name, size, torch, others = (cell.strip() for cell in row.split("|"))
        found |= dict.fromkeys(filter(None, [torch, *others.split(", ")]), Element(name, int(size), torch))
    return found


_ELEMENT = _elements()


def element(dtype: str | None) -> Element | None:
    """The element type that a trace calls so: `c10::BFloat16`, `float`, `long int`; `None` when unknown."""
    return _ELEMENT.get(dtype.lower().removeprefix("c10::").removeprefix("torch.")) if dtype else None


def dtype_bytes(dtype: str | None) -> int | None:
    """Bytes of one element; `None` when unknown."""
    found = element(dtype)
    return found.bytes if found else None


def element_types(text: str) -> str:
    """Element types in a text as people call them: `Float` is `fp32`, `c10::BFloat16` `bf16`."""

    def named(match: re.Match[str]) -> str:
        found = element(match[0])
        return found.name if found and found.name else match[0]

    return re.sub(r"\b(?:c10::|torch\.)?[A-Za-z]\w*", named, text)


# The arguments of an operator's call as a trace records them.


Shape = tuple[int, ...]

MOST_NAMES = 16_384
"""Of distinct ones are remembered: the ranks of a job make the same."""


class Call(Struct, frozen=True):
    """The recorded arguments of a call; without any where they are absent or damaged.

    Attributes:
        shapes: of each argument: nested for lists of tensors, empty for what is no tensor.
        dtypes: element type of each.
        arguments: values of each that is no tensor, as JSON.
    """

    shapes: tuple[Any, ...] = ()
    dtypes: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    @classmethod
    @lru_cache(MOST_NAMES)
    def parse(cls, shapes: str | None, dtypes: str | None = None, arguments: str | None = None) -> "Call":
        """From JSON texts as a trace has them."""
        try:
            parts = [json.loads(text or "[]") for text in (shapes, dtypes, arguments)]
        except ValueError:
            return cls()
        if not all(isinstance(part, list) for part in parts):
            return cls()
        return cls(_frozen(parts[0]), *(tuple(map(str, part)) for part in parts[1:]))

    def shape(self, position: int, ndim: int | None = None) -> Shape:
        """Shape of an argument.

        Raises:
            LookupError: it is no tensor, or not of that many dimensions.
        """
        shape: Shape = self.shapes[position]
        if not is_shape(shape) or len(shape) != (ndim or len(shape)):
            raise LookupError(position)
        return shape

    def value(self, position: int) -> Any:
        """Value of an argument that is no tensor.

        Raises:
            LookupError: it was not recorded.
        """
        try:
            return json.loads(self.arguments[position].lower())
        except json.JSONDecodeError as error:
            raise LookupError(position) from error

    @property
    def tensors(self) -> list[tuple[Shape, str]]:
        """Shape and element type of each argument that is one tensor; an unknown type is empty."""
        pairs: Any = zip_longest(self.shapes, self.dtypes, fillvalue="")
        return [pair for pair in pairs if is_shape(pair[0])]

    @property
    def sizes(self) -> list[Shape]:
        """Shapes of these."""
        return [shape for shape in self.shapes if is_shape(shape)]

    @property
    def first(self) -> Shape | None:
        """Shape of the first argument, where that is a tensor."""
        return self.shapes[0] if is_shape(self.shapes[:1] and self.shapes[0]) else None

    @property
    def listed(self) -> list[Shape]:
        """Shapes of the tensors of a list that comes first, as optimizers have it."""
        first = self.shapes[:1] and self.shapes[0]
        return [*filter(is_shape, first)] if isinstance(first, tuple) else []

    @property
    def dtype(self) -> str | None:
        """Element type of the first tensor of floating point, else of the first tensor."""
        types = [dtype for _, dtype in self.tensors if dtype]
        return next((t for t in types if not t.startswith(("long", "int", "bool"))), types[0] if types else None)


def is_shape(value: object) -> bool:
    """Whether it is the shape of one tensor."""
    return isinstance(value, tuple) and bool(value) and all(type(size) is int and size >= 0 for size in value)


def is_list(value: object) -> bool:
    """Whether it has the shapes of a list of tensors."""
    return isinstance(value, tuple) and bool(value) and all(isinstance(part, tuple) for part in value)


def tensor_bytes(shape: Shape, dtype: str | None) -> int | None:
    """Bytes of a tensor; `None` when the element type is unknown."""
    size = dtype_bytes(dtype)
    return None if size is None else prod(shape) * size


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


# Which operators of the host communicate, and what their arguments say of the bytes.


_OF_COMMUNICATION = re.compile(
    r"^(?:symm_mem|_c10d_functional|c10d|c10d_functional|_C_custom_ar|deep_ep)::|^(?:nccl|rccl|gloo|mpi|ucc|xccl|hccl):(?!:)"
)

_LOCAL = re.compile(
    r"::(?:wait_tensor|barrier_|monitored_barrier_|\w*copy_(?:in|out)|chunk_cat)\b|^(?:aten|fsdp)::", re.IGNORECASE
)
"""Operators of those libraries, and of PyTorch, that launch nothing that communicates."""


class OperatorBytes(Struct, frozen=True):
    """What an operator's arguments say; `None` where they do not.

    Attributes:
        dtype: element type, in PyTorch's word.
        size_bytes: of the full array: all-gather its output, reduce-scatter its input, else the first tensor.
    """

    dtype: str | None = None
    size_bytes: int | None = None


@lru_cache(maxsize=65_536)
def is_comm_operator(name: str) -> bool:
    """Whether an operator of this name communicates: `symm_mem::…`, `vllm::all_reduce`, `nccl:all_reduce`."""
    return not _LOCAL.search(name) and bool(_OF_COMMUNICATION.search(name) or speaks(name))


def operator_bytes(
    what: str | None, shapes: str | None, dtypes: str | None, ranks: int | None, dtype: str | None
) -> OperatorBytes:
    """Size of a collective's full array from `Input Dims` and `Input type` of its operator, JSON texts both.

    An all-gather of which only the input is seen has `ranks` times its size. Of a list of tensors a trace does not
    give the element type: `dtype` is what the kernel's name says.
    """
    tensors = [own for own in _sizes(shapes, dtypes, dtype) if own.size_bytes]
    if not tensors or what not in ("all_gather", "reduce_scatter"):
        return tensors[0] if tensors else OperatorBytes()
    if len(tensors) > 1 or what == "reduce_scatter":
        return max(tensors, key=lambda tensor: tensor.size_bytes or 0)
    return OperatorBytes(tensors[0].dtype, (tensors[0].size_bytes or 0) * ranks if ranks else None)


def inputs_bytes(shapes: str | None, dtypes: str | None) -> int | None:
    """Bytes of all tensors of `Input Dims` and `Input type`, JSON texts both; `None` where one is unknown."""
    sizes = [own.size_bytes for own in _sizes(shapes, dtypes)]
    return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None


def _sizes(shapes: str | None, dtypes: str | None, dtype_of_lists: str | None = None) -> list[OperatorBytes]:
    """Of each argument: a tensor, or a list of them; nothing of others."""
    call, found = Call.parse(shapes, dtypes), []
    for shape, dtype in zip(call.shapes, call.dtypes, strict=False):
        parts = shape if is_list(shape) else [shape]
        own = dtype_of_lists if is_list(shape) else dtype.removeprefix("c10::")
        size = dtype_bytes(own) if all(map(is_shape, parts)) else None
        found.append(OperatorBytes() if size is None else OperatorBytes(own, size * sum(map(prod, parts))))
    return found


def operator_collective(name: str) -> str | None:
    """The collective that an operator's name says: of `fused_all_gather_matmul` all-gather."""
    return collective(name.rsplit("::", 1)[-1])
