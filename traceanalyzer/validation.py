"""Checks arguments of the library's functions; errors say what is accepted."""

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from pathlib import Path
from types import UnionType
from typing import Any, cast, get_args, get_origin

from traceanalyzer.errors import UsageError

_MOST = 80
"""Characters of a value shown in an error."""


def shown(value: object) -> str:
    """A value on one line, for an error."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def place_of(value: object, what: str) -> Path:
    """The path given for `what`, such as `save takes a folder`.

    Raises:
        UsageError: it is not a path, or empty.
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(text := os.fspath(value), str):
        raise UsageError(f"{what}: not {shown(value)}")
    if not text:
        raise UsageError(f"{what}: this text is empty")
    return Path(text)


def text_of(value: object, name: str) -> str:
    """The text given as `name`.

    Raises:
        UsageError: it is not a text.
    """
    if not isinstance(value, str):
        raise UsageError(f"{name} takes a text, not {shown(value)}")
    return value


def formats_of(value: object, known: Collection[str]) -> tuple[str, ...]:
    """Formats from one name or several.

    Raises:
        UsageError: no name is given, or one is unknown.
    """
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    for name in names or ("",):
        if not isinstance(name, str) or name not in known:
            raise UsageError(f"no format is called {shown(name)}; there are {', '.join(known)}")
    return names


def threshold(name: str, value: object, kind: Any) -> Any:
    """The value of a threshold with this annotation; whole numbers as `int`.

    Raises:
        UsageError: it has another type, is negative, or is not a number.
    """
    if kind not in (int, float):
        if not _fits(value, kind):
            raise UsageError(f"{name} takes {_written(kind)}, not {shown(value)}")
        return value
    number = _number(value)
    if math.isnan(number) or number < 0 or (kind is int and not number.is_integer()):
        raise UsageError(f"{name} takes a {'whole ' if kind is int else ''}number from 0 on, not {shown(value)}")
    return int(number) if kind is int else value


def _number(value: object) -> float:
    """A Python or NumPy number as `float`; NaN for anything else."""
    return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(cast("float", value))


def _fits(value: object, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(_fits(value, one) for one in inner)
    if not isinstance(value, origin or kind) or (isinstance(value, bool) and kind is int):
        return False
    if isinstance(value, Mapping):
        return all(_fits(key, inner[0]) and _fits(own, inner[1]) for key, own in value.items())
    return not inner or all(_fits(own, inner[0]) for own in value)


def _written(kind: Any) -> str:
    """`Mapping[int, Placed] | None`."""
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else re.sub(r"\w+\.", "", str(kind))
