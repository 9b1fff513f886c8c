"""The peak by frames as a picture: each box a call, as wide as what it and the calls in it hold."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from traceanalyzer.meaning import quantities
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.snapshots import Examined
from traceanalyzer.snapshots.sites import BEFORE, is_of_torch, line, site

WIDTH, ROW = 1200, 18

_LEAST_WIDTH = 2.0
"""Narrower boxes are left out: the box that holds them shows that something is missing above it."""

_LETTER, _MARGIN, _MOST_DEPTH = 6.3, 4, 60

_PASSED_ON = ("_call_impl", "_wrapped_call_impl")
"""Frames of PyTorch that stand between a module and its forward function: without them pictures are half as high."""


@dataclass(slots=True)
class _Call:
    """A frame below the same outer frames."""

    name: str
    is_own: bool
    size_bytes: int = 0
    inner: "dict[str, _Call]" = field(default_factory=dict)


def flame(one: Examined) -> dict[str, Any] | None:
    """Boxes with their places in a picture of WIDTH; those of a row add up to no more than the row below.

    Outermost calls stand at the bottom. `None` without anything in use.
    """
    if not one.peak_bytes or one.peak_stacks.empty:
        return None
    root = _Call("all that is in use at the peak", is_own=False)
    for number, size in zip(one.peak_stacks["stack"], one.peak_stacks["size_bytes"], strict=True):
        _add(root, _names(one, int(number)), int(size))
    boxes: list[dict[str, Any]] = []
    depth = _place(root, 0.0, 0, WIDTH / root.size_bytes, boxes)
    height = (depth + 1) * ROW
    for box in boxes:
        box["y"] = height - (box.pop("depth") + 1) * ROW
        box["share"] = f"{100 * box['bytes'] / root.size_bytes:.1f} %"
        box["size"] = quantities.text(box.pop("bytes"), Unit.BYTES)
    return {"boxes": boxes, "width": WIDTH, "height": height, "row": ROW}


def _names(one: Examined, number: int) -> Sequence[tuple[str, bool]]:
    """Frames of a stack, outermost first, each with whether it is the user's."""
    if number < 0:
        return ((BEFORE, False),)
    frames = [frame for frame in one.snapshot.stacks[number] if frame[0].endswith(".py")]
    kept = [frame for frame in reversed(frames) if frame[2] not in _PASSED_ON]
    return [(line(frame), not is_of_torch(frame[0])) for frame in kept[:_MOST_DEPTH]] or (
        (site(one.snapshot.stacks[number]), False),
    )


def _add(call: _Call, names: Sequence[tuple[str, bool]], size: int) -> None:
    call.size_bytes += size
    for name, is_own in names:
        call = call.inner.setdefault(name, _Call(name, is_own))
        call.size_bytes += size


def _place(call: _Call, x: float, depth: int, scale: float, boxes: list[dict[str, Any]]) -> int:
    """Add the call's box and those of the calls in it, widest first; returns the greatest depth."""
    width = call.size_bytes * scale
    letters = int((width - 2 * _MARGIN) / _LETTER)
    boxes.append(
        {
            "x": round(x, 1),
            "width": round(width, 1),
            "depth": depth,
            "name": call.name,
            "text": call.name if letters >= len(call.name) else f"{call.name[: letters - 1]}…" if letters > 4 else "",
            "is_own": call.is_own,
            "bytes": call.size_bytes,
        }
    )
    deepest = depth
    for inner in sorted(call.inner.values(), key=lambda one: -one.size_bytes):
        if inner.size_bytes * scale >= _LEAST_WIDTH:
            deepest = max(deepest, _place(inner, x, depth + 1, scale, boxes))
        x += inner.size_bytes * scale
    return deepest
