"""Which operators communicate, and dtypes."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from types import MappingProxyType

from msgspec import Struct

from traceanalyzer.kinds.kernels import collective, speaks

# PyTorch's scalar types: bytes of one element, and what people call them.


_DTYPE_BYTES = {
    "double": 8, "float64": 8, "long": 8, "int64": 8, "uint64": 8, "complexfloat": 8,
    "float": 4, "float32": 4, "int": 4, "int32": 4, "uint32": 4, "complexhalf": 4,
    "half": 2, "float16": 2, "bfloat16": 2, "short": 2, "int16": 2, "uint16": 2,
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "complexdouble": 16,
    "signed char": 1, "unsigned char": 1, "long int": 8, "short int": 2,
}  # fmt: skip
"""Traces of today write `c10::BFloat16`, `float` and `long int`, the operators' own types."""


def dtype_bytes(dtype: str | None) -> int | None:
    """Bytes of one element of a PyTorch scalar type as traces write it (`BFloat16`); `None` when unknown."""
    return _DTYPE_BYTES.get(dtype.lower().removeprefix("c10::").removeprefix("torch.")) if dtype else None


_ELEMENTS: Mapping[str, str] = MappingProxyType(
    {
        "float": "fp32", "float32": "fp32", "double": "fp64", "float64": "fp64", "half": "fp16", "float16": "fp16",
        "bfloat16": "bf16", "long": "int64", "int": "int32", "short": "int16", "char": "int8", "byte": "uint8",
    }
)  # fmt: skip


def element_types(text: str) -> str:
    """Element types in a text as people call them: `Float` is `fp32`, `c10::BFloat16` `bf16`."""
    return re.sub(r"\b(?:c10::|torch\.)?([A-Za-z]\w*)", lambda found: _ELEMENTS.get(found[1].lower(), found[0]), text)


# Which operators of the host communicate, and what their arguments say of the bytes.


_OF_COMMUNICATION = re.compile(
    r"^(?:symm_mem|_c10d_functional|c10d|c10d_functional|_C_custom_ar|deep_ep)::|^(?:nccl|rccl|gloo|mpi|ucc|xccl|hccl):(?!:)"
)

_LOCAL = re.compile(
    r"::(?:wait_tensor|barrier_|monitored_barrier_|\w*copy_(?:in|out)|chunk_cat)\b|^(?:aten|fsdp)::", re.IGNORECASE
)
"""Operators of those libraries, and of PyTorch, that launch nothing that communicates."""

_WHOLE_IS_LARGEST = ("all_gather", "reduce_scatter")


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
    pairs = zip(_parsed(shapes), _parsed(dtypes), strict=False)
    tensors = [found for shape, of_shape in pairs if (found := _tensor(shape, of_shape, dtype)).size_bytes]
    if not tensors or what not in _WHOLE_IS_LARGEST:
        return tensors[0] if tensors else OperatorBytes()
    if len(tensors) > 1 or what == "reduce_scatter":
        return max(tensors, key=lambda tensor: tensor.size_bytes or 0)
    return OperatorBytes(tensors[0].dtype, (tensors[0].size_bytes or 0) * ranks if ranks else None)


def inputs_bytes(shapes: str | None, dtypes: str | None) -> int | None:
    """Bytes of all tensors of `Input Dims` and `Input type`, JSON texts both; `None` where one is unknown."""
    pairs = list(zip(_parsed(shapes), _parsed(dtypes), strict=False))
    sizes = [_tensor(shape, dtype, None).size_bytes for shape, dtype in pairs]
    return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None


def _tensor(shape: object, dtype: object, dtype_of_list: str | None) -> OperatorBytes:
    """A tensor, or a list of tensors; nothing for other arguments."""
    if not isinstance(shape, list) or not shape or not isinstance(dtype, str):
        return OperatorBytes()
    is_list = all(isinstance(part, list) for part in shape)
    element = dtype_of_list if is_list else dtype.removeprefix("c10::")
    parts = shape if is_list else [shape]
    size = dtype_bytes(element)
    if size is None or not all(_is_shape(part) for part in parts):
        return OperatorBytes()
    return OperatorBytes(element, size * sum(prod(part) for part in parts))


def _is_shape(value: list[object]) -> bool:
    return bool(value) and all(type(length) is int and length >= 0 for length in value)


def _parsed(text: str | None) -> list[object]:
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def operator_collective(name: str) -> str | None:
    """The collective that an operator's name says: of `fused_all_gather_matmul` all-gather."""
    return collective(name.rsplit("::", 1)[-1])
