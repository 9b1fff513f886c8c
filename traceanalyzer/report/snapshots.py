"""How memory snapshots are reported: terminal, JSON, page."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape

from traceanalyzer import __version__
from traceanalyzer.meaning import columns
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.report import assets, table_view
from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.writers import write_text
from traceanalyzer.snapshots import Examined, deciding, sentences
from traceanalyzer.snapshots.comparison import Job
from traceanalyzer.snapshots.examination import BEFORE, is_of_torch, line, site

# Examined snapshots as JSON.


FORMAT_VERSION = 1


def text(examined: Sequence[Examined], job: Job | None = None) -> str:
    """What the file holds."""
    content = {
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "verdict": [*(job.sentences if job else ()), *sentences(examined)],
        "fit": [] if job is None or job.fit is None else job.fit.rows(),
        "snapshots": [_one(one) for one in examined],
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)


def _one(one: Examined) -> dict[str, Any]:
    snapshot = one.snapshot
    stacks = snapshot.stacks
    return {
        "file": snapshot.path.name,
        "rank": snapshot.rank,
        "device": snapshot.device,
        "other_events": {str(device): count for device, count in snapshot.other_events.items()},
        "events": len(snapshot.history),
        "settings": snapshot.settings,
        "end_bytes": one.end,
        "peak_bytes": one.peak_bytes if one.has_history else None,
        "peak_allocated_bytes": one.peak_allocated_bytes if one.has_history else None,
        "peak_allocated_is_exact": one.is_exact,
        "contradicted_bytes": one.contradicted_bytes,
        "peak_ns": int(one.levels["time_ns"].iloc[one.peak_at]) if one.peak_at >= 0 else None,
        "peak_categories": one.peak_categories.to_dict("records"),
        "peak_sites": _sites(one.peak_sites, stacks),
        "end_sites": _sites(one.end_sites, stacks),
        "growths": [asdict(growth) for growth in one.growths],
        "oom": None if one.oom is None else asdict(one.oom),
        "free_bytes": one.free_bytes,
        "free_private_bytes": one.free_private_bytes,
        "free_blocks": one.free_blocks,
        "largest_free_bytes": one.largest_free_bytes,
    }


def _sites(sites: Any, stacks: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        row | {"stack": _lines(stacks[row["stack"]] if row["stack"] >= 0 else ())} for row in sites.to_dict("records")
    ]


def _lines(stack: Sequence[Any]) -> list[str]:
    return [f"{file}:{line} in {name}" for file, line, name in stack]


# The peak by frames as a picture: each box a call, as wide as what it and the calls in it hold.


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
    """Boxes with their places in a picture; those of a row add up to no more than the row below.

    Outermost calls stand at the bottom. `None` without anything in use.
    """
    if not one.peak_bytes or one.peak_stacks.empty:
        return None
    root = _Call("all that is in use at the peak", is_own=False)
    for number, size in zip(one.peak_stacks["stack"], one.peak_stacks["size_bytes"], strict=True):
        _add(root, _names(one, int(number)), int(size))
    boxes = list(_boxes(root, 0.0, 0, LAYOUT.picture_width / root.size_bytes))
    height = (max(box["depth"] for box in boxes) + 1) * LAYOUT.flame_row
    return {"boxes": boxes, "width": LAYOUT.picture_width, "height": height, "row": LAYOUT.flame_row}


def _names(one: Examined, number: int) -> Sequence[tuple[str, bool]]:
    """Frames of a stack, outermost first, each with whether it is the user's."""
    if number < 0:
        return ((BEFORE, False),)
    frames = [frame for frame in one.snapshot.stacks[number] if frame[0].endswith(".py")]
    kept = [frame for frame in reversed(frames) if frame[2] not in _PASSED_ON]
    return [(line(frame), not is_of_torch(frame[0])) for frame in kept[: LAYOUT.flame_depth]] or (
        (site(one.snapshot.stacks[number]), False),
    )


def _add(call: _Call, names: Sequence[tuple[str, bool]], size: int) -> None:
    call.size_bytes += size
    for name, is_own in names:
        call = call.inner.setdefault(name, _Call(name, is_own))
        call.size_bytes += size


def _boxes(call: _Call, x: float, depth: int, scale: float) -> Iterator[dict[str, Any]]:
    """The call's box and those of the calls in it, widest first."""
    width = call.size_bytes * scale
    yield {"x": round(x, 1), "width": round(width, 1), "depth": depth, "name": call.name, "is_own": call.is_own,
           "size_bytes": call.size_bytes}  # fmt: skip
    for inner in sorted(call.inner.values(), key=lambda one: -one.size_bytes):
        if inner.size_bytes * scale >= LAYOUT.flame_box:
            yield from _boxes(inner, x, depth + 1, scale)
        x += inner.size_bytes * scale


# Memory snapshots as one HTML page that needs no network, in the report's style.


_FIT = (
    "strategy", "tp", "pp", "checkpointing", "micro_batch", "fits", "is_enough", "state_bytes", "activation_bytes",
    "total_bytes", "headroom_bytes", "measured_peak_bytes",
)  # fmt: skip


def write(
    examined: Sequence[Examined], folder: Path, label: str, command: str | None = None, job: Job | None = None
) -> list[Path]:
    """`memory.html` and `memory.json`."""
    return [
        write_text(folder / "memory.html", page(examined, label, command, job)),
        write_text(folder / "memory.json", text(examined, job) + "\n"),
    ]


def page(examined: Sequence[Examined], label: str, command: str | None = None, job: Job | None = None) -> str:
    """The page's text."""
    fit = job.fit if job else None
    first, shown = deciding(examined), _shown(examined)
    context: dict[str, Any] = {
        "label": label,
        "examined": examined,
        "verdict": [*(job.sentences if job else ()), *sentences(examined)],
        "fit": None if fit is None else table_view.view(fit, _FIT),
        "assumptions": None if fit is None or not len(fit) else fit.table["assumptions"].iloc[0],
        "shown": shown,
        "deciding": first,
        "others": [place for place in range(len(examined)) if place not in first],
        "pictures": {place: _picture(examined[place]) for place in shown},
        "flames": {place: flame(examined[place]) for place in shown},
        "most_sites": LAYOUT.memory_sites,
        "frames": _frames,
        "command": command,
    }
    return assets.render("memory.html", context, entry="plain.js", styles=("memory.css",))


def _shown(examined: Sequence[Examined]) -> list[int]:
    """Places of the ranks that have a part of the page: those that decide, then others in their order."""
    first = deciding(examined)
    order = sorted(range(len(examined)), key=lambda place: (place not in first, -examined[place].peak_bytes))
    return sorted(order[: LAYOUT.memory_ranks], key=lambda place: (place not in first, place))


def _frames(one: Examined, stack: int) -> list[str]:
    """Python's frames of a stack, C++ where there are no others."""
    frames = one.snapshot.stacks[stack] if stack >= 0 else ()
    python = [frame for frame in frames if frame[0].endswith(".py")]
    return [f"{file}:{line} in {name}" for file, line, name in (python or frames)]


def _picture(one: Examined) -> dict[str, Any] | None:
    """Paths of both levels over time, and where the peak lies."""
    table = one.levels
    if len(table) < 2:
        return None
    times = np.maximum.accumulate(table["time_ns"].to_numpy())  # a host's clock may be set back
    span = max(int(times[-1] - times[0]), 1)
    top = max(int(table["reserved_bytes"].max()), one.peak_bytes, 1)
    slot = np.minimum((times - times[0]) * LAYOUT.memory_points // span, LAYOUT.memory_points - 1)
    return {
        "requested": _path(slot, table["requested_bytes"].to_numpy(), top),
        "reserved": _path(slot, table["reserved_bytes"].to_numpy(), top),
        "peak_x": round(LAYOUT.picture_width * (int(times[one.peak_at]) - int(times[0])) / span, 1),
        "peak_y": round(LAYOUT.memory_height * (1 - one.peak_bytes / top), 1),
        "top": columns.text(top, Unit.BYTES),
        "span": columns.text(span, Unit.NS),
        "width": LAYOUT.picture_width,
        "height": LAYOUT.memory_height,
    }


def _path(slot: np.ndarray, values: np.ndarray, top: int) -> str:
    """An area under the most of each slot; slots without an event keep what was."""
    slots = pd.Series(values).groupby(slot).agg(["max", "last"]).reindex(range(LAYOUT.memory_points))
    heights = slots["max"].fillna(slots["last"].ffill())
    across, up = LAYOUT.picture_width / LAYOUT.memory_points, LAYOUT.memory_height / top
    points = "".join(
        f"L{place * across:.0f} {LAYOUT.memory_height - value * up:.1f}" for place, value in heights.items()
    )
    return f"M0 {LAYOUT.memory_height}{points}L{LAYOUT.picture_width} {LAYOUT.memory_height}z"


# What the command prints of memory snapshots.


def show(examined: Sequence[Examined], console: Console, sentences: Sequence[str]) -> None:
    """Print a row a snapshot, and the first sentences about them."""
    rows = [
        {
            "snapshot": one.snapshot.label,
            "peak_bytes": one.peak_bytes if one.has_history else None,
            "end_bytes": one.end["allocated"],
            "reserved_bytes": one.end["reserved"],
            "largest_free_bytes": one.largest_free_bytes,
            "events": len(one.snapshot.history),
        }
        for one in examined[: LAYOUT.printed_snapshots]
    ]
    caption = f"{len(rows)} of {len(examined)}; memory.json has all" if len(rows) < len(examined) else ""
    view = table_view.view_of(pd.DataFrame(rows).convert_dtypes(), "Memory snapshots", {})
    console.print(table_view.console_table(view, console.width, caption=caption))
    for sentence in sentences[: LAYOUT.printed_sentences]:
        console.print(f"[bold]•[/] {escape(sentence)}", highlight=False)
