"""What a page calls the columns and values that files and code call by names with underscores."""

import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from traceanalyzer.kinds import COLLECTIVES
from traceanalyzer.names import short_name
from traceanalyzer.report.words.quantities import quantity

_LABELS: Mapping[str, str] = MappingProxyType(
    {
        "tflops_per_s": "arithmetic",
        "gbytes_per_s": "memory",
        "peak_tflops_per_s": "peak",
        "cv": "std / mean",
        "compute_cv": "compute std / mean",
        "max_over_mean": "max / mean",
        "group_label": "process group",
        "compute_max_over_mean": "compute max / mean",
    }
)
"""Columns whose words are not those of their name."""

_WORDS: Mapping[str, str] = MappingProxyType({"gpu": "GPU", "api": "API", "mfu": "MFU", "flops": "FLOPs", "p2p": "P2P"})

_VERSIONS: Mapping[str, str] = MappingProxyType(
    {"cuda_driver": "CUDA driver", "cuda_runtime": "CUDA runtime", "nccl": "NCCL", "torch": "PyTorch"}
)

MOST_OF_DIFFERENCE = 32
"""Characters of what tells names of one short name apart."""

_FIGURE = re.compile(r"(\d) (%|[nµm]?s|[kMGT]?B|[kMGT]?B/s|[MGT]FLOP(?:/s)?)(?![\w/])")
"""A figure's last digit, and its unit after a plain space."""

_ELEMENTS: Mapping[str, str] = MappingProxyType(
    {
        "float": "fp32", "float32": "fp32", "double": "fp64", "float64": "fp64", "half": "fp16", "float16": "fp16",
        "bfloat16": "bf16", "long": "int64", "int": "int32", "short": "int16", "char": "int8", "byte": "uint8",
    }
)  # fmt: skip

NAMES = ("name", "kernel", "after", "before", "doing", "ended_by", "operation", "range")
"""Columns that hold names of kernels or operators."""

_OURS = ("check", "affects")
"""Columns whose values are names of ours, not of the trace."""


def label(column: str) -> str:
    """A column's name in words, without its unit: `is_complete` is `complete`, `gpu_own_ns` `GPU own`."""
    if column in _LABELS:
        return _LABELS[column]
    words = column.removesuffix(f"_{quantity(column)}").removeprefix("is_").split("_")
    return " ".join(_WORDS.get(word, re.sub(r"^(\d+)us$", "\\1\u202fµs", word)) for word in words)


def words(text: str, column: str) -> str:
    """What a person calls the value of a column: kernels by their short names, ours without underscores."""
    if column in _WORDINGS:
        return _WORDINGS[column](text)
    if column == "kind" and text == "comm":
        return "communication"
    if column == "collective" or text in COLLECTIVES:
        return text.replace("_", "-")
    return text.replace("_", " ") if column in _OURS else text


def element_types(text: str) -> str:
    """Element types as people call them: `Float` is `fp32`, `c10::BFloat16` `bf16`."""
    return re.sub(r"\b(?:c10::|torch\.)?([A-Za-z]\w*)", lambda found: _ELEMENTS.get(found[1].lower(), found[0]), text)


def unbroken(text: str) -> str:
    """A sentence, or a page's text, in which no line breaks between a figure and its unit."""
    return type(text)(_FIGURE.sub("\\1\u202f\\2", text))


def told_apart(names: Collection[str]) -> dict[str, str]:
    """What each of several names has that not all of them have, in its order: `64x4 TNN`; cut when it is long."""
    parts = {name: dict.fromkeys(re.findall(r"[^\W_]+", name)) for name in names}
    common = set.intersection(*map(set, parts.values()))
    differences = {name: " ".join(part for part in own if part not in common) for name, own in parts.items()}
    most = MOST_OF_DIFFERENCE
    return {name: text if len(text) <= most else f"{text[: most - 1]}…" for name, text in differences.items()}


def versions(text: str) -> list[str]:
    """`cuda_driver 13.0, nccl 2.28.9` as people write it, one by one."""
    named = [part.partition(" ") for part in text.split(", ")]
    return [f"{_VERSIONS.get(name, name.replace('_', ' '))} {version}" for name, _, version in named]


_WORDINGS: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        **dict.fromkeys(NAMES, short_name),
        "figure": label,  # a column's name: what it is of; its unit stands in the columns' heads
        "dtype": element_types,
        "dtypes": element_types,
        "versions": lambda text: ", ".join(versions(text)),
    }
)
"""By column, how its values are written."""
