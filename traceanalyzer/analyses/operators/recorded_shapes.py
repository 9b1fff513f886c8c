"""The shapes of an operator's inputs, of the JSON text in which traces have them."""

import json
from functools import lru_cache
from typing import Any

from msgspec import Struct

Shape = tuple[int, ...]


class Inputs(Struct, frozen=True):
    """An operator's inputs.

    Attributes:
        each: the shape of each; `None` of what is none: a number, a list, or not recorded.
        listed: those of the tensors of a list that comes first, as optimizers have it.
    """

    each: tuple[Shape | None, ...] = ()
    listed: tuple[Shape, ...] = ()

    @property
    def first(self) -> Shape | None:
        """The shape of the first one."""
        return self.each[0] if self.each else None

    @property
    def tensors(self) -> tuple[Shape, ...]:
        """Shapes of those that have one."""
        return tuple(shape for shape in self.each if shape)


@lru_cache(16_384)
def inputs_of(shapes: str) -> Inputs:
    """Of `[[8192, 64], [100], []]` three, of `[[[4, 2], [3]], []]` two, the first one a list; none of any other text.

    Ranks of one program have the same: each text is read once.
    """
    try:
        told = json.loads(shapes)
    except ValueError:
        return Inputs()
    if not isinstance(told, list):
        return Inputs()
    first = told[0] if told and isinstance(told[0], list) else []
    return Inputs(tuple(map(_shape, told)), tuple(shape for shape in map(_shape, first) if shape))


def _shape(told: Any) -> Shape | None:
    is_shape = isinstance(told, list) and told and all(isinstance(size, int) for size in told)
    return tuple(told) if is_shape else None
