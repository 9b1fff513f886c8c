"""Which kernels of two runs are variants of one operation: another tile, template or compiled version of it."""

import re
from functools import lru_cache

import numpy as np
import pandas as pd

from traceanalyzer import kinds

_I = re.IGNORECASE

# In this order: a flash-attention kernel's name may hold "gemm".
_FAMILIES = (
    (
        "attention backward",
        # From the start alone: tried at each character it takes 10 ms of a long name.
        re.compile(r"\A(?=.*(?:flash|fmha|sdpa|attention|attn|mha))(?=.*(?:bprop|bwd|backward|cutlassB))", _I),
    ),
    ("attention forward", re.compile(r"flash|fmha|sdpa|attention|attn_|mha_", _I)),
    ("gemm", re.compile(r"gemm|nvjet|gemv|Cijk_|triton_tem_\w*mm|cublas\w*matmul|wgmma", _I)),
)  # fmt: skip

_WRAPPER = re.compile(r"(?:vectorized_|unrolled_|legacy_)*elementwise_kernel(?:_manual_unroll|_with_index)?")
_TYPE = re.compile(
    r"const|void|unsigned|signed|float|double|half|int|long|short|char|bool|u?int\d+_t|BFloat16|Half|Float8_\w+|complex"
    r"|__nv_bfloat16|__half|T\d+|array|lambda|instance|operator|true|false|[AB]UnaryFunctor|BinaryFunctor"
)
"""Words of a C++ name that tell element types, widths, positions or which operand is a number, not what is done."""

_NAMELESS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>)::")


@lru_cache(maxsize=65_536)
def operation(name: str) -> str:
    """The operation that a kernel carries out, whatever its tile, template arguments or element type.

    Matrix products are `gemm`, attention is `attention forward` or `backward`, communication `NCCL <collective>`;
    a generated Triton kernel loses its number; of any other name stay the function's and its template arguments'
    names, without element types and the vectorised or unrolled form of PyTorch's elementwise wrapper.
    """
    if re.search(r"^(?:nccl|rccl)", name, _I):
        return f"NCCL {kinds.collective(name) or 'kernel'}"
    for family, pattern in _FAMILIES:
        if pattern.search(name):
            return family
    if name.startswith("triton_"):
        return re.sub(r"_\d+$", "", name)
    return _own_words(_WRAPPER.sub("elementwise_kernel", name)) or name


def _own_words(name: str) -> str:
    """The names in a C++ signature, each once and without namespaces, arguments, types and numbers.

    PyTorch's profiler and Nsight Systems write the same kernel differently; its names they share.
    """
    words = re.findall(r"(?:\w+::)*\b([A-Za-z_]\w*)", _head(_NAMELESS.sub("", name).removeprefix("void ")))
    return " ".join(dict.fromkeys(word for word in words if not _TYPE.fullmatch(word)))


def _head(name: str) -> str:
    """The signature without its arguments: up to the end of its template arguments, if it has any."""
    function = name.split("(", 1)[0]
    if "<" not in function:
        return function
    depth = 0
    for place, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if depth == 0 and character == ">":
            return name[: place + 1]
    return name


def pairs(base: pd.DataFrame, other: pd.DataFrame) -> list[tuple[list[str], list[str]]]:
    """Names that only one run has, put together as variants: base's names, other's names.

    Within an operation, kernels with the same number of calls are paired one to one, longest mean duration first;
    what is left on both sides becomes one group. An operation that only one run has left gives nothing. The rule is
    the same from both sides. Tables have `name`, `calls` and `total_ns`.
    """
    left, right = (_described(frame) for frame in (base, other))
    made: list[tuple[list[str], list[str]]] = []
    for family in sorted(set(left["operation"]) & set(right["operation"])):
        one, two = (frame[frame["operation"] == family] for frame in (left, right))
        matched = one.merge(two, on=["calls", "place"], suffixes=("_base", "_other"))
        made += [([a], [b]) for a, b in zip(matched["name_base"], matched["name_other"], strict=True)]
        rest = [
            sorted(set(frame["name"]) - set(matched[column]))
            for frame, column in ((one, "name_base"), (two, "name_other"))
        ]
        if all(rest):
            made.append((rest[0], rest[1]))
    return made


def _described(frame: pd.DataFrame) -> pd.DataFrame:
    """With the operation, and the place among those of the same operation and calls."""
    frame = frame.dropna(subset="name")
    calls = frame["calls"].to_numpy(dtype=np.float64)
    table = frame[["name", "calls", "total_ns"]].assign(
        operation=frame["name"].map(operation),
        mean_ns=frame["total_ns"].to_numpy(dtype=np.float64) / np.maximum(calls, 1e-9),
    )
    table = table.sort_values(["mean_ns", "name"], ascending=[False, True])
    return table.assign(place=table.groupby(["operation", "calls"]).cumcount())
