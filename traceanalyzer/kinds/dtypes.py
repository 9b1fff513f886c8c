"""Bytes of one element of each of PyTorch's scalar types."""

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
