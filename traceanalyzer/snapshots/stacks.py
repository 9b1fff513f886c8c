"""The different stacks of a snapshot, numbered."""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from traceanalyzer.snapshots.repeats import LOST, MOST_LISTS, negative

Stack = tuple[tuple[str, int, str], ...]
"""Frames of a call, innermost first: file, line, function."""

NO_FRAMES = -1
"""Stands for what is no list of frames, and no frame."""

_FRAME = itemgetter("filename", "line", "name")


class Stacks:
    """Numbers different stacks, in order."""

    def __init__(self) -> None:
        self.numbers: dict[Stack, int] = {}
        self._frames: list[tuple[str, int, str]] = []
        self._repeated = np.full(MOST_LISTS, NO_FRAMES, "int32")

    def numbered(self, many: Iterable[Any]) -> np.ndarray:
        """The stacks' numbers; errors as `number`."""
        told = list(many)
        for at, frames in enumerate(told):
            if type(frames) is not int:
                told[at] = self.number(frames)
        numbers = np.fromiter(told, "int32", len(told))
        is_repeated = numbers < NO_FRAMES
        numbers[is_repeated] = self._repeated[negative(numbers[is_repeated])]
        if ((numbers < 0) | (numbers >= len(self.numbers))).any():
            raise TypeError("no list of frames")
        return numbers

    def number(self, frames: Any) -> int:
        """The stack's number; a stand-in of an earlier piece is one already, and of lists `Repeats` tells.

        Raises:
            TypeError: it is nothing of these.
        """
        if type(frames) is tuple:
            repeated, content = frames
            number = self._repeated[repeated] = self.number(content)
            return number
        if type(frames) is int:
            return int(self.numbered([frames])[0])
        try:
            stack = tuple(map(_FRAME, frames)) if frames else ()
        except TypeError:
            stack = tuple(self._frames[frame] if isinstance(frame, int) else _FRAME(frame) for frame in frames)
        known = self.numbers.get(stack)
        if known is None:  # checked once a stack, and not once an event
            _check(stack)
            known = self.numbers.setdefault(stack, len(self.numbers))
        return known

    def stand_in(self, value: Any) -> int:
        """A number for a list of frames, or for a frame; what is neither is nothing that an event refers to."""
        if type(value) in (int, tuple):
            return self.number(value)
        if isinstance(value, list) and all(isinstance(frame, int) or _is_frame(frame) for frame in value):
            return self.number(value)
        if isinstance(value, list) and LOST in value:
            raise TypeError("a frame of a list that was left out")
        if _is_frame(value):
            self._frames.append(_FRAME(value))
            return len(self._frames) - 1
        return NO_FRAMES


def _check(stack: Stack) -> None:
    """Raise `TypeError` unless files and functions are texts and lines numbers."""
    for file, line, name in stack:
        if not (isinstance(file, str) and isinstance(line, int) and isinstance(name, str)):
            raise TypeError("a frame is no file, line and function")


def _is_frame(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() >= {"filename", "line", "name"}
