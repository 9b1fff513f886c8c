"""What a page calls the columns and values that files and code call by names with underscores."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from traceanalyzer.kinds import COLLECTIVES
from traceanalyzer.names import short_name
from traceanalyzer.report.quantities import quantity

_LABELS: Mapping[str, str] = MappingProxyType(
    {
        "tflops_per_s": "arithmetic",
        "gbytes_per_s": "memory",
        "peak_tflops_per_s": "peak",
        "cv": "std / mean",
        "compute_cv": "compute std / mean",
        "max_over_mean": "max / mean",
        "compute_max_over_mean": "compute max / mean",
    }
)
"""Columns whose words are not those of their name."""

_WORDS: Mapping[str, str] = MappingProxyType({"gpu": "GPU", "api": "API", "mfu": "MFU", "flops": "FLOPs", "p2p": "P2P"})

_VERSIONS: Mapping[str, str] = MappingProxyType(
    {"cuda_driver": "CUDA driver", "cuda_runtime": "CUDA", "nccl": "NCCL", "torch": "PyTorch"}
)

_FIGURE = re.compile(r"(\d) (%|[nµm]?s|[kMGT]?B|[kMGT]?B/s|[MGT]FLOP(?:/s)?)(?![\w/])")
"""A figure's last digit, and its unit after a plain space."""

_NAMES = ("name", "kernel", "after", "before", "doing", "ended_by", "operation", "range")
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
    if column in _NAMES:
        return short_name(text)
    if column == "figure":  # a column's name: what it is of; its unit stands in the columns' heads
        return label(text)
    if column == "versions":
        return ", ".join(versions(text))
    if column == "kind" and text == "comm":
        return "communication"
    if column == "collective" or text in COLLECTIVES:
        return text.replace("_", "-")
    return text.replace("_", " ") if column in _OURS else text


def unbroken(text: str) -> str:
    """A sentence, or a page's text, in which no line breaks between a figure and its unit."""
    return type(text)(_FIGURE.sub("\\1\u202f\\2", text))


def versions(text: str) -> list[str]:
    """`cuda_driver 13.0, nccl 2.28.9` as people write it, one by one."""
    named = [part.partition(" ") for part in text.split(", ")]
    return [f"{_VERSIONS.get(name, name.replace('_', ' '))} {version}" for name, _, version in named]
