"""What a Kineto file says, read the slow way: the standard library's JSON, fractions, one event after the other."""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.fuzz.outcome import WrongError

_GPU = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
_MOST_US = 4 * 10**15
_LONGEST_US = 10**12


@dataclass(frozen=True)
class Told:
    """GPU operations that the text holds whole, as sorted (start_ns, end_ns, name); whether the text is valid JSON."""

    ops: tuple[tuple[int, int, str], ...]
    is_valid: bool


def unpacked(data: bytes) -> bytes:
    """What can be unpacked, member after member."""
    if data[:2] != b"\x1f\x8b":
        return data
    made = []
    while data[:2] == b"\x1f\x8b":
        unpacker = zlib.decompressobj(31)
        place = 0
        try:
            for place in range(len(data)):
                made.append(unpacker.decompress(data[place : place + 1]))
                if unpacker.eof:
                    break
        except zlib.error:
            break
        data = data[place + 1 :]
    return b"".join(made)


def told(data: bytes) -> Told | None:
    """What the file's bytes say; `None` where there is nothing to hold the reader against."""
    text = unpacked(data).removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
    try:
        found: Any = json.loads(text, parse_float=Fraction, parse_int=_integer, strict=False)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict):
        base, found = found.get("baseTimeNanoseconds", 0), found.get("traceEvents")
    else:
        base = 0
    if not isinstance(found, list) or type(base) is not int or not 0 <= base <= 4 * 10**18:
        return None
    made = [_operation(event, base) for event in _events(found)]
    if any(one is _CANNOT_BE_TOLD for one in made):
        return None
    return Told(tuple(sorted(one for one in made if one is not None)), is_valid=True)


def _events(found: list[Any]) -> Iterator[dict[str, Any]]:
    """The objects of a list, and of the lists in it: an event with a bracket too many around it is one all the same."""
    for each in found:
        if isinstance(each, list):
            yield from _events(each)
        elif isinstance(each, dict):
            yield each


def _integer(text: str) -> int:
    return int(text) if len(text) < 400 else 10**400


_CANNOT_BE_TOLD = (0, 0, "?")


def _operation(event: dict[str, Any], base: int) -> tuple[int, int, str] | None:
    category = event.get("cat")
    if event.get("ph") != "X" or not isinstance(category, str) or category.lower() not in _GPU:
        return None
    start, length, name = event.get("ts"), event.get("dur", 0), event.get("name")
    args = event.get("args")
    if (
        not all(_is_number(value) for value in (start, length))
        or not isinstance(name, str)
        or not isinstance(args, dict)
    ):
        return _CANNOT_BE_TOLD
    if abs(start) > _MOST_US or not -_MOST_US <= length <= _LONGEST_US or "\ud800" in name:
        return _CANNOT_BE_TOLD
    begin = _rounded(start)
    return base + begin, base + begin + max(0, _rounded(length)), _plain(name) or "(unnamed)"


def _plain(name: str) -> str:
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in name)


def _is_number(value: Any) -> bool:
    return type(value) in (int, Fraction)


def _rounded(time_us: Fraction | int) -> int:
    return round(Fraction(time_us) * 1000)


def hold_against(expected: Told, ops: list[tuple[int, int, str]]) -> None:
    """Raise `WrongError` where the reader's operations are not those that the text holds."""
    if len(ops) != len(expected.ops):
        raise WrongError(f"count: {len(ops)} GPU operations read, the text holds {len(expected.ops)}")
    for one, two in zip(sorted(ops), expected.ops, strict=True):
        # A half of a nanosecond is rounded either way.
        if one[2] != two[2] or abs(one[0] - two[0]) > 1 or abs((one[1] - one[0]) - (two[1] - two[0])) > 1:
            raise WrongError(f"value: {one} read, the text holds {two}")
