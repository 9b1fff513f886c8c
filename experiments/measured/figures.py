"""Figures of the studies as SVG: active memory over a step, and what moves beside each block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measured.cells import GIB, MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from measured.runs import Run

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2")
LEFT, WIDTH, HEIGHT = 60, 640, 260


def active_memory(runs: list[Run]) -> str:
    """What tensors held on rank 0 over the recorded steps, a line for each run that recorded the allocator."""
    levels = {run.name: run.table("memory_levels") for run in runs if run.is_analysed}
    lines = {name: _line(own[own["rank"] == 0]) for name, own in levels.items() if len(own)}
    return _plot(lines, "ms", "GiB held by tensors, rank 0") if lines else ""


def _line(levels: pd.DataFrame) -> list[tuple[float, float]]:
    since = levels["time_ns"].min()
    return [((row.time_ns - since) / MS, row.allocated_bytes / GIB) for row in levels.itertuples()]


def _plot(lines: dict[str, list[tuple[float, float]]], across: str, title: str) -> str:
    longest, highest = (max(point[axis] for line in lines.values() for point in line) for axis in (0, 1))

    def parts() -> Iterator[str]:
        for number, (name, line) in enumerate(lines.items()):
            colour = COLOURS[number % len(COLOURS)]
            points = " ".join(
                f"{LEFT + WIDTH * x / longest:.1f},{30 + HEIGHT - HEIGHT * y / highest:.1f}" for x, y in line
            )
            yield f'<polyline points="{points}" fill="none" stroke="{colour}"/>'
            yield _key(number, name, colour)
        yield f'<text x="{LEFT - 6}" y="36" text-anchor="end">{highest:.0f}</text>'
        yield f'<text x="{LEFT - 6}" y="{30 + HEIGHT}" text-anchor="end">0</text>'
        yield f'<text x="{LEFT + WIDTH}" y="{50 + HEIGHT}" text-anchor="end">{longest:.0f} {across}</text>'

    return _svg(parts(), title, HEIGHT + 60)


def blocks(runs: list[Run]) -> str:
    """Of each run the time from block to block, and what a block computes, uploads and offloads in it."""
    named = {
        "from block to block": "pitch_ns",
        "compute": "compute_ns",
        "upload": "upload_ns",
        "offload": "download_ns",
    }
    times = {run.name: run.table("block_bounds").mean() for run in runs}
    times = {name: own for name, own in times.items() if len(own)}
    if not times:
        return ""
    longest = max(own["pitch_ns"] for own in times.values())

    def parts() -> Iterator[str]:
        for place, (name, own) in enumerate(times.items()):
            top = 40 + 70 * place
            yield f'<text x="{LEFT}" y="{top}">{name}</text>'
            for number, column in enumerate(named.values()):
                width, y = WIDTH * own[column] / longest, top + 5 + 12 * number
                yield f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="10" fill="{COLOURS[number]}"/>'
                yield f'<text x="{LEFT + width + 4:.1f}" y="{y + 9}" font-size="10">{own[column] / MS:.2f}</text>'
        for number, name in enumerate(named):
            yield _key(number, name, COLOURS[number])

    return _svg(parts(), "ms of a block, mean of the ranks", 50 + 70 * len(times))


def _key(number: int, name: str, colour: str) -> str:
    x, y = LEFT + WIDTH + 60, 40 + 20 * number
    return f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/><text x="{x + 16}" y="{y}">{name}</text>'


def _svg(parts: Iterator[str], title: str, height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 260} {height}" font-family="sans-serif" '
        f'font-size="13"><rect width="100%" height="100%" fill="#fff"/><text x="{LEFT}" y="18">{title}</text>'
        + "".join(parts)
        + "</svg>\n"
    )
