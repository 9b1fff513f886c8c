"""Examined snapshots as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from traceanalyzer import __version__
from traceanalyzer.snapshots import Examined, sentences
from traceanalyzer.snapshots.job import Job

FORMAT_VERSION = 1


def write(examined: Sequence[Examined], folder: Path, job: Job | None = None) -> list[Path]:
    """`memory.json`."""
    path = folder / "memory.json"
    path.write_text(text(examined, job) + "\n", encoding="utf-8", errors="replace")
    return [path]


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
        "contradicted_bytes": one.contradicted_bytes,
        "peak_allocated_is_exact": one.is_exact,
        "peak_ns": int(one.levels["time_ns"].iloc[one.peak_at]) if one.peak_at >= 0 else None,
        "peak_categories": one.peak_categories.to_dict("records"),
        "peak_sites": _sites(one.peak_sites, stacks),
        "end_sites": _sites(one.end_sites, stacks),
        "growths": [asdict(growth) for growth in one.growths],
        "oom": None if one.oom is None else asdict(one.oom),
        "taken_late": [asdict(taken) for taken in one.taken],
        "gave_back": one.gave_back,
        "trace_steps": [] if one.trace_steps is None else one.trace_steps.table.to_dict("records"),
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
