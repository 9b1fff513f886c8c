"""Memory snapshots as one HTML page that needs no network, in the report's style."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from traceanalyzer import __version__
from traceanalyzer.meaning import quantities
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.report import assets
from traceanalyzer.report.page import table_view
from traceanalyzer.report.snapshots.flame import flame
from traceanalyzer.snapshots import Examined, deciding, sentences
from traceanalyzer.snapshots.job import Job

MOST_SITES = 40
MOST_PARTS = 64
"""Ranks that have a part of the page, of some 60 kB; the table has all."""
POINTS = 1200
"""Places across the picture; of the events in each the most is drawn, so that no peak is lost."""
_FIT = (
    "strategy", "tp", "pp", "checkpointing", "micro_batch", "fits", "is_enough", "state_bytes", "activation_bytes",
    "total_bytes", "headroom_bytes", "measured_peak_bytes",
)  # fmt: skip
_WIDTH, _HEIGHT = 1200, 180


def write(
    examined: Sequence[Examined], folder: Path, label: str, command: str | None = None, job: Job | None = None
) -> list[Path]:
    """`memory.html`."""
    path = folder / "memory.html"
    path.write_text(page(examined, label, command, job), encoding="utf-8", errors="replace")
    return [path]


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
        "plain_rows": table_view.PLAIN_ROWS,
        "shown": shown,
        "deciding": first,
        "others": [place for place in range(len(examined)) if place not in first],
        "pictures": {place: _picture(examined[place]) for place in shown},
        "flames": {place: flame(examined[place]) for place in shown},
        "most_sites": MOST_SITES,
        "frames": _frames,
        "command": command,
        "version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return assets.render("memory.html", context, entry="plain.js", styles=("memory.css",))


def _shown(examined: Sequence[Examined]) -> list[int]:
    """Places of the ranks that have a part of the page: those that decide, then others in their order."""
    first = deciding(examined)
    order = sorted(range(len(examined)), key=lambda place: (place not in first, -examined[place].peak_bytes))
    return sorted(order[:MOST_PARTS], key=lambda place: (place not in first, place))


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
    slot = np.minimum((times - times[0]) * POINTS // span, POINTS - 1)
    return {
        "requested": _path(slot, table["requested_bytes"].to_numpy(), top),
        "reserved": _path(slot, table["reserved_bytes"].to_numpy(), top),
        "peak_x": round(_WIDTH * (int(times[one.peak_at]) - int(times[0])) / span, 1),
        "peak_y": round(_HEIGHT * (1 - one.peak_bytes / top), 1),
        "top": quantities.text(top, Unit.BYTES),
        "span": quantities.text(span, Unit.NS),
        "width": _WIDTH,
        "height": _HEIGHT,
    }


def _path(slot: np.ndarray, values: np.ndarray, top: int) -> str:
    """An area under the most of each slot; slots without an event keep what was."""
    most = np.full(POINTS, -1, "int64")
    np.maximum.at(most, slot, values)
    last = np.maximum.accumulate(np.where(most >= 0, np.arange(POINTS), 0))
    ends = np.zeros(POINTS, "int64")
    ends[slot] = values  # the last event of a slot wins
    heights = np.where(most >= 0, most, ends[last])
    across, up = _WIDTH / POINTS, _HEIGHT / top
    points = "".join(
        f"L{place * across:.0f} {_HEIGHT - value * up:.1f}" for place, value in enumerate(heights.tolist())
    )
    return f"M0 {_HEIGHT}{points}L{_WIDTH} {_HEIGHT}z"
