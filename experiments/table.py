"""The comparison of a set's runs, from their run.json files, as CSV and Markdown."""

from __future__ import annotations

import csv
import json
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

GIB = 2**30


def row_of(set_name: str, label: str, seed: int, folder: Path, outcome: str, wall_s: float) -> dict[str, Any]:
    """One run's row; `outcome` stands where the run left no run.json."""
    row = {"set": set_name, "run": label, "seed": seed, "wall_s": round(wall_s, 1)}
    try:
        run = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError):
        return {**row, "status": outcome}
    batch, time = run["batch"] or {}, (run["step_time_ns"] or {}).get("unprofiled") or {}
    return {
        **row,
        "status": outcome if outcome == "timed out" else run["status"],
        "strategy": run["strategy"],
        "ranks": run["world_size"],
        "global_batch": batch.get("global_batch"),
        "tokens_per_step": batch.get("tokens_per_step"),
        "step_ms": _scaled(time.get("mean"), 1e-6),
        "step_std_ms": _scaled(time.get("std"), 1e-6),
        "tokens_per_s": _scaled(run["tokens_per_s"], 1.0),
        "model_tflops_per_s_per_rank": _tflops(run, time),
        "peak_allocated_gib": _peak_gib(run, "peak_allocated_bytes"),
        "peak_reserved_gib": _peak_gib(run, "peak_reserved_bytes"),
        "uploaded_gb_per_step": _uploaded(run, "uploaded_bytes_per_step"),
        "peer_gb_per_step": _uploaded(run, "peer_bytes_per_step"),
        "first_loss": _at(run["losses"], 0),
        "last_loss": _at(run["losses"], -1),
        "error": run["error"],
    }


def over_seeds(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of one label and several seeds: mean and sample standard deviation of their throughput."""
    by_label: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.get("tokens_per_s") is not None:
            by_label.setdefault((row["set"], row["run"]), []).append(row["tokens_per_s"])
    return [
        {
            "set": set_name,
            "run": label,
            "seeds": len(values),
            "tokens_per_s_mean": round(statistics.fmean(values), 1),
            "tokens_per_s_std": round(statistics.stdev(values), 1),
            "values": " ".join(map(str, values)),
        }
        for (set_name, label), values in by_label.items()
        if len(values) > 1
    ]


def write(rows: list[dict[str, Any]], stem: Path) -> str:
    """Write `stem`.csv and `stem`.md; the Markdown."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with stem.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    cells = [[_shown(row.get(column)) for column in columns] for row in rows]
    lines = [columns, ["---"] * len(columns), *cells]
    markdown = "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
    stem.with_suffix(".md").write_text(markdown)
    return markdown


def _shown(value: Any) -> str:
    return "n/a" if value is None else str(value).replace("|", "/")


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 3)


def _peak_gib(run: dict[str, Any], counter: str) -> float | None:
    peaks = [rank[counter] for rank in run["memory"] or [] if rank[counter] is not None]
    return round(max(peaks) / GIB, 2) if peaks else None


def _uploaded(run: dict[str, Any], counter: str) -> float | None:
    moved = [rank[counter] for rank in run["transfer"] or [] if rank.get(counter) is not None]
    return round(sum(moved) / 1e9, 3) if moved else None


def _tflops(run: dict[str, Any], time: dict[str, Any]) -> float | None:
    if not time or run["model_flops_per_step"] is None:
        return None
    return round(run["model_flops_per_step"] / time["mean"] / 1e3 / run["world_size"], 1)


def _at(values: list[float] | None, index: int) -> float | None:
    return round(values[index], 4) if values else None
