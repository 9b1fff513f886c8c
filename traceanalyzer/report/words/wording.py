"""What a page calls the columns and values that files and code call by names with underscores."""

import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from traceanalyzer.analyses import column_named
from traceanalyzer.kinds import COLLECTIVES, element_types
from traceanalyzer.meaning.columns import Column, Written, stem
from traceanalyzer.meaning.names import collective_words, short_name

_WORDS: Mapping[str, str] = MappingProxyType({"gpu": "GPU", "api": "API", "mfu": "MFU", "flops": "FLOPs", "p2p": "P2P"})

_VERSIONS: Mapping[str, str] = MappingProxyType(
    {"cuda_driver": "CUDA driver", "cuda_runtime": "CUDA runtime", "nccl": "NCCL", "torch": "PyTorch"}
)

MOST_OF_DIFFERENCE = 32
"""Characters of what tells names of one short name apart."""

_FIGURE = re.compile(r"(\d) (%|[nµm]?s|[kMGT]?B|[kMGT]?B/s|[MGT]FLOP(?:/s)?)(?![\w/])")
"""A figure's last digit, and its unit after a plain space."""


def label(name: str, column: Column) -> str:
    """A column in words, without its unit: `is_complete` is `complete`, `gpu_own_ns` `GPU own`."""
    if column.label:
        return column.label
    words = stem(name).removeprefix("is_").split("_")
    return " ".join(_WORDS.get(word, re.sub(r"^(\d+)us$", "\\1\u202fµs", word)) for word in words)


def words(text: str, column: Column) -> str:
    """What a person calls the value of a column: kernels by their short names, ours without underscores."""
    if column.written in _WORDINGS:
        return _WORDINGS[column.written](text)
    return collective_words(text) if text in COLLECTIVES else text


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


_WORDINGS: Mapping[Written, Callable[[str], str]] = MappingProxyType(
    {
        Written.KERNEL: short_name,
        Written.COLLECTIVE: collective_words,
        Written.KIND: lambda text: "communication" if text == "comm" else text,
        Written.OURS: lambda text: text.replace("_", " "),
        Written.FIGURE: lambda text: label(text, column_named(text)),  # its unit stands in the columns' heads
        Written.DTYPE: element_types,
        Written.VERSIONS: lambda text: ", ".join(versions(text)),
    }
)
