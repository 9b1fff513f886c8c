"""Lists of frames that a pickled history repeats byte for byte: unpickled once, and named from then on.

Events of the same line have equal lists, each written anew: nine tenths of a large snapshot. Such a list holds numbers,
texts and references to earlier objects only, so that equal bytes mean equal frames anywhere in the file.
"""

import re
import struct
from typing import Final, TypeVar

import numpy as np

LOST: Final = "?"
"""Stands for what is in a list that was left out: who refers to it has to be read in another way."""

MOST_LISTS = 200_000
"""Different lists that are kept: files that hold more do not repeat theirs."""

_REFERENCE = rb"h.|j.{4}"
_TEXT = rb"\x8c.[ -~]*+\x94"
_FRAME = rb"\}\x94\((?:" + _REFERENCE + rb"|K.|M..|J.{4}|" + _TEXT + rb"){6}u"
_LIST = re.compile(rb"\]\x94\((?:" + _FRAME + rb"|" + _REFERENCE + rb")++e", re.DOTALL)
_OPCODES = re.compile(rb"[](}]\x94?|[ue]|" + _REFERENCE + rb"|K.|M..|J.{4}|" + _TEXT, re.DOTALL)
_NUMBERED = b"]}\x8c"
_BEGIN, _END = b"]\x94(", b"eu"
"""Start of a list; end of a list, and of the event that it is the last field of."""


class Repeats:
    """The different lists of a file, numbered as they come."""

    def __init__(self) -> None:
        self._short: dict[bytes, bytes] = {}
        """What stands for a list, by its bytes."""

    def shortened(self, piece: bytes) -> bytes:
        """The piece with `(number, list)` in place of a list that is new, and a `negative` of one that is known.

        As many objects are numbered in it as before, so that what refers to later ones finds them.
        """
        parts: list[bytes] = []
        add, find, known = parts.append, piece.find, self._short.get
        done = at = 0
        while (start := find(_BEGIN, at)) >= 0:
            at = find(_END, start) + 1
            short = known(piece[start:at])
            if short is None:
                short, at = self._looked_at(piece, start)
            if short:
                add(piece[done:start])
                add(short)
                done = at
        add(piece[done:])
        return b"".join(parts)

    def _looked_at(self, piece: bytes, start: int) -> tuple[bytes, int]:
        """What stands for the list that starts there, or nothing, and where to go on."""
        found = _LIST.match(piece, start)
        if found is None:  # a number looks like the start of one
            return b"", start + 1
        content = found[0]
        if content in self._short:  # a number inside looks like its end
            return self._short[content], found.end()
        if len(self._short) >= MOST_LISTS:
            return b"", found.end()
        number = len(self._short)
        inside = sum(opcode[0] in _NUMBERED for opcode in _OPCODES.findall(content)) - 1
        lost = b"X\x01\x00\x00\x00" + LOST.encode() + b"\x94" * inside + b"0"
        self._short[content] = _pushed(negative(number)) + b"\x94" + (lost if inside else b"")
        return _pushed(number) + content + b"\x86", found.end()


Numbers = TypeVar("Numbers", int, np.ndarray)


def negative(number: Numbers) -> Numbers:
    """What stands for a list that is known, by its number, and the other way round: at most -2."""
    return -2 - number


def _pushed(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)
