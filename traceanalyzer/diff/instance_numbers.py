"""Names of ranges and modules without the numbers of their instances: what two runs call alike."""

import re

import pandas as pd

_AFTER_MARK = re.compile(r"(?<=[.#])\d+(?![\w])")

_AFTER_WORD = re.compile(
    r"\b(step|iteration|iter|epoch|micro_?step|micro_?batch|layer|block|stage)([ _])\d+\b", re.IGNORECASE
)

_OF_CLASS = re.compile(r"(?:(?<=/)|^)(?:FSDP(?=[A-Z]))?([A-Z]\w*)_\d+(?=/|$)")
"""A module as PyTorch writes it, its class and number; FSDP puts its name before the class."""

_IN_BRACKETS = re.compile(r"(?<=\()\d+(?=\))")

_WRAPPERS = re.compile(
    r"(?:(?<=/)|^)(?:DistributedDataParallel|FullyShardedDataParallel|OptimizedModule)(?:_\*|\.forward)/"
)
"""Parts of paths that wrap a model and are left out where something follows."""

PATHS = ("path", "range")
"""Keys that hold ranges or modules in every table."""


def without_instances(frame: pd.DataFrame, keys: tuple[str, ...]) -> pd.DataFrame:
    """The table with `blocks.9` as `blocks.*`, `ProfilerStep#2` as `ProfilerStep#*`, `step_3` as `step_*`."""
    held = [key for key in keys if key in frame]
    return frame.assign(**{key: frame[key].map(_known(frame[key]), na_action="ignore") for key in held})


def plain(name: str) -> str:
    """One name without the numbers of its instances, and without what wraps the model."""
    numbered = _IN_BRACKETS.sub("*", _OF_CLASS.sub(r"\1_*", name))
    return _WRAPPERS.sub("", _AFTER_WORD.sub(r"\1\2*", _AFTER_MARK.sub("*", numbered)))


def _known(names: pd.Series) -> dict[object, str]:
    return {name: plain(str(name)) for name in names.dropna().unique()}
