"""PyTorch's scalar types: bytes of one element, and what people call them."""

import re
from collections.abc import Mapping
from types import MappingProxyType

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
