"""What can still be had of a damaged rocprofv3 file: of one that was cut off, and of one with odd records."""

import re
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from traceanalyzer.readers.rocprof.records import Buffers, Content, Process

# A whole string (so that brackets in names do not count), or a bracket.
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)

_CLOSING = {b"{": b"}", b"[": b"]"}


def salvaged(text: bytes) -> tuple[Content, int, bool] | None:
    """The content without what cannot be understood, how many records that costs, and whether the file is cut off.

    `None` where nothing can be had.
    """
    is_cut = False
    try:
        plain = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        is_cut = True
        try:
            plain = msgspec.json.decode(closed(text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    told = plain.get("rocprofiler-sdk-tool") if isinstance(plain, Mapping) else None
    processes = [one for one in (told if isinstance(told, list) else [told]) if isinstance(one, Mapping)]
    made = [_process(one) for one in processes]
    return (Content([process for process, _ in made]), sum(lost for _, lost in made), is_cut) if made else None


def closed(text: bytes) -> bytes:
    """The text up to the last whole object of a list, with the brackets that are then open closed."""
    stack: list[bytes] = []
    end, open_then = 0, b""
    for match in _STRUCTURE.finditer(text):
        token = match[0]
        if token in _CLOSING:
            stack.append(_CLOSING[token])
        elif token in (b"}", b"]"):
            if not stack or stack.pop() != token:
                break
            if stack and stack[-1] == b"]":  # an element of a list; a part of one is not whole
                end, open_then = match.end(), b"".join(reversed(stack))
    return text[:end] + open_then


def _process(told: Mapping[str, Any]) -> tuple[Process, int]:
    """A process, field by field and record by record."""
    kept: dict[str, Any] = {}
    lost = 0
    for name, kind in get_type_hints(Process, include_extras=True).items():
        if name not in told:
            continue
        if name == "buffer_records":
            kept[name], lost = _buffers(told[name])
            continue
        try:
            kept[name] = msgspec.convert(told[name], kind)
        except msgspec.ValidationError:
            lost += 1
    return Process(**kept), lost


def _buffers(told: Any) -> tuple[Buffers, int]:
    kept: dict[str, list[Any]] = {}
    lost = 0
    for name, kind in get_type_hints(Buffers).items():
        records = told.get(name) if isinstance(told, Mapping) else None
        kept[name] = []
        for record in records if isinstance(records, list) else ():
            try:
                kept[name].append(msgspec.convert(record, kind.__args__[0]))
            except msgspec.ValidationError:
                lost += 1
    return Buffers(**kept), lost
