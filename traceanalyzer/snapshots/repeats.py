"""Lists of frames that a pickled history repeats byte for byte: unpickled once, and named from then on.

Events of the same line have equal lists, each written anew: nine tenths of a large snapshot. Such a list holds numbers,
texts and references to earlier objects only, so that equal bytes mean equal frames anywhere in the file.
"""

import re
import struct
from typing import Final

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
        self._known: dict[bytes, int] = {}
        self._short: list[bytes] = []

    def shortened(self, piece: bytes) -> bytes:
        """The piece with `(number, list)` in place of a list that is new, and `(number,)` of one that is known.

        As many objects are numbered in it as before, so that what refers to later ones finds them.
        """
        parts: list[bytes] = []
        done = at = 0
        while (start := piece.find(_BEGIN, at)) >= 0:
            end = piece.find(_END, start) + 1
            number = self._known.get(piece[start:end])
            if number is None:  # new, or the end was none: a number inside looks like it
                found = _LIST.match(piece, start)
                if found is None:
                    at = start + 1
                    continue
                end = found.end()
                number = self._known.get(found[0])
            if number is not None:
                parts += (piece[done:start], self._short[number])
                done = end
            elif len(self._short) < MOST_LISTS:
                parts += (piece[done:start], self._new(piece[start:end]))
                done = end
            at = end
        parts.append(piece[done:])
        return b"".join(parts)

    def _new(self, content: bytes) -> bytes:
        number = self._known[content] = len(self._short)
        pushed = b"J" + struct.pack("<i", number)
        inside = sum(opcode[0] in _NUMBERED for opcode in _OPCODES.findall(content)) - 1
        self._short.append(pushed + b"\x85\x94X\x01\x00\x00\x00" + LOST.encode() + b"\x94" * inside + b"0")
        return pushed + content + b"\x86"
