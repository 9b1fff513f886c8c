"""The table, the plot and the estimate of `beside_peers.py`, from its rows."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

Rows = Sequence[Mapping[str, Any]]

COLD = "traceanalyzer, cold"

COLOURS = {COLD: "#0072b2", "traceanalyzer, warm": "#56b4e9", "json.load": "#999999", "pysimdjson": "#009e73",
           "HolisticTraceAnalysis": "#d55e00", "traceinsight": "#cc79a7"}  # fmt: skip

WIDTH, HEIGHT = 380, 240
"""Of one of the plot's two parts."""


def machine() -> str:
    """Processor, as far as the system names it, and cores that may be used."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{(models or [platform.machine()])[0]}, {len(os.sched_getaffinity(0))} cores"


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def write(rows: Rows, missing: Mapping[str, str], folder: Path, note: str = "") -> None:
    """`speed.md`, `speed.svg` and `speed.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"date": today(), "machine": machine(), "python": platform.python_version(), "missing": dict(missing)}
    (folder / "speed.json").write_text(json.dumps({**facts, "rows": list(rows)}, indent=1) + "\n")
    (folder / "speed.svg").write_text(plot(rows))
    loads = [row["load"] for row in rows if row["load"] is not None]
    lines = [
        "# Speed beside peers", "",
        f"Made by `benchmarks/beside_peers.py` on {facts['date']}: {facts['machine']}, load {min(loads, default=0):.1f} to "
        f"{max(loads, default=0):.1f}; Python {facts['python']}. HolisticTraceAnalysis 0.5.0 and traceinsight 0.6.0 run four of "
        "their analyses; this project writes its whole report (page, CSV, JSON). `json.load` and pysimdjson only parse the "
        f"file. CPU time is of all processes. {note}".rstrip(), "",
        *(f"Without {name}: {why}." for name, why in missing.items()), *([""] if missing else []),
        "| what | ranks | MB a rank | wall s | CPU s | peak MB of one process | CPU beside this project, cold |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(_line(row, rows) for row in rows),
        "", "![CPU seconds by size of one file, and by ranks](speed.svg)", "", *estimate(rows),
    ]  # fmt: skip
    (folder / "speed.md").write_text("\n".join(lines) + "\n")


def _line(row: Mapping[str, Any], rows: Rows) -> str:
    size = f"{row['file_mb']:.0f}{' ' + row['form'] if row['form'] else ''}"
    head = f"| {row['what']} | {row['ranks']} | {size} |"
    if row["cpu_s"] is None:
        return f"{head} failed: {row['failed']} | | | |"
    job = ("ranks", "file_mb", "form")
    ours = [each["cpu_s"] for each in rows if each["what"] == COLD and all(each[key] == row[key] for key in job)]
    beside = f"{row['cpu_s'] / ours[0]:.2g} ×" if ours and ours[0] and row["what"] != COLD else ""
    return f"{head} {row['wall_s']:.1f} | {row['cpu_s']:.1f} | {row['peak_mb']:,.0f} | {beside} |"


def estimate(rows: Rows) -> list[str]:
    """CPU seconds by rank and by GB, fitted to the measured rows."""
    cold = [row for row in rows if row["what"] == COLD and row["cpu_s"] and not row["form"]]
    many = [row for row in cold if row["ranks"] > 1 and row["own_cpu_s"]]
    if len({row["ranks"] for row in many}) < 2 or len({row["file_mb"] for row in cold}) < 2:
        return ["A fit needs files of two sizes, and two numbers of ranks above one."]
    # What one process does for all ranks, and what each rank costs wherever it is read.
    serial, a_rank_s = _line_through([row["ranks"] for row in many], [row["own_cpu_s"] for row in many])
    base_mb, a_rank_mb = _line_through([row["ranks"] for row in many], [row["own_peak_mb"] for row in many])
    work = [row["cpu_s"] - serial - a_rank_s * row["ranks"] for row in cold]
    matrix = np.array([[row["ranks"], row["ranks"] * row["file_mb"]] for row in cold])
    weight = 1 / np.array([row["cpu_s"] for row in cold])
    (each_s, a_mb_s), *_ = np.linalg.lstsq(matrix * weight[:, None], np.array(work) * weight, rcond=None)
    off = np.abs(matrix @ (each_s, a_mb_s) - work) * weight
    return [
        "## Scaling", "",
        f"CPU seconds of {len(cold)} cold runs of plain text, fitted; the largest error of the fit is {100 * off.max():.0f}%:", "",
        f"- each rank, on any core or worker: {each_s:.2f} s + {1000 * a_mb_s:.1f} s a GB (read and analysed)",
        f"- the process that joins the ranks: {serial:.1f} s + {a_rank_s:.3f} s a rank; its memory {base_mb:,.0f} MB + {a_rank_mb:.2f} MB a rank",
    ]  # fmt: skip


def _line_through(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    slope, start = np.polyfit(x, y, 1)
    return float(start), float(slope)


def plot(rows: Rows) -> str:
    """CPU seconds: of one file by its size, and of files of the smallest size by ranks; logarithmic."""
    done = [row for row in rows if row["cpu_s"] and not row["form"]]
    if not done:
        return '<svg xmlns="http://www.w3.org/2000/svg"/>\n'
    least = min(row["file_mb"] for row in done)
    one = [(row["what"], row["file_mb"], row["cpu_s"]) for row in done if row["ranks"] == 1]
    several = [(row["what"], row["ranks"], row["cpu_s"]) for row in done if row["file_mb"] < 1.1 * least]
    parts = [_axes(one, 60, "MB of one file"), _axes(several, 110 + WIDTH, f"ranks of {least:.0f} MB each")]
    key = [
        f'<circle cx="{960}" cy="{50 + 22 * n}" r="5" fill="{colour}"/><text x="972" y="{54 + 22 * n}">{what}</text>'
        for n, (what, colour) in enumerate(COLOURS.items())
    ]
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1150 330" font-family="sans-serif" font-size="13">'
            f'<rect width="1150" height="330" fill="#fff"/><text x="60" y="20">CPU seconds, all processes</text>{"".join(parts + key)}</svg>\n')  # fmt: skip


def _axes(points: Sequence[tuple[str, float, float]], left: int, title: str) -> str:
    if not points:
        return ""
    x, y = (np.log10([point[place] for point in points]) for place in (1, 2))
    low, high = np.floor(y.min()), np.ceil(y.max())

    def across(value: float) -> float:
        return float(left + WIDTH * (value - x.min()) / max(np.ptp(x), 1e-9))

    def up(value: float) -> float:
        return float(30 + HEIGHT - HEIGHT * (value - low) / max(high - low, 1))

    made = [
        f'<path d="M{left} 30V{30 + HEIGHT}H{left + WIDTH}" stroke="#888" fill="none"/>',
        f'<text x="{left + WIDTH / 2:.0f}" y="{70 + HEIGHT}" text-anchor="middle">{title}</text>',
    ]
    made += [
        f'<path d="M{left} {up(decade):.0f}h{WIDTH}" stroke="#ddd"/>'
        f'<text x="{left - 6}" y="{up(decade) + 4:.0f}" text-anchor="end">{10**decade:g}</text>'
        for decade in np.arange(low, high + 1)
    ]
    made += [
        f'<text x="{across(np.log10(value)):.0f}" y="{50 + HEIGHT}" text-anchor="middle">{value:,.0f}</text>'
        for value in sorted({point[1] for point in points})
    ]
    for what, colour in COLOURS.items():
        own = sorted((across(np.log10(a)), up(np.log10(b)), a, b) for name, a, b in points if name == what)
        line = " ".join(f"{a:.0f},{b:.0f}" for a, b, *_ in own)
        made.append(f'<polyline points="{line}" stroke="{colour}" stroke-width="2" fill="none"/>')
        made += [
            f'<circle cx="{a:.0f}" cy="{b:.0f}" r="4" fill="{colour}"><title>{what}, {value:,.0f}: {cpu_s:.1f} s</title></circle>'
            for a, b, value, cpu_s in own
        ]
    return "".join(made)
