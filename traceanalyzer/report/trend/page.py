"""Baselines over time as one HTML page that needs no network, as CSV and as JSON."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from traceanalyzer import __version__
from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.diff.metrics import BY_NAME
from traceanalyzer.diff.trend import COLUMNS
from traceanalyzer.meaning import quantities
from traceanalyzer.report import assets
from traceanalyzer.report.trend.rows import change, label
from traceanalyzer.report.writers.tables import write_frame

_WIDTH, _HEIGHT, _EDGE = 1000, 220, 24


def write(table: pd.DataFrame, doubts: Sequence[str], folder: Path) -> list[Path]:
    """`trend.html`, `trend.csv` and `trend.json`."""
    html, csv, plain = (folder / f"trend.{suffix}" for suffix in ("html", "csv", "json"))
    html.write_text(page(table, doubts), encoding="utf-8", errors="replace")
    write_frame(table, csv)
    content = {
        "columns": COLUMNS,
        "rows": plain_rows(table),
        "not_the_same_work": list(doubts),
    }
    plain.write_text(
        json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False), encoding="utf-8", errors="replace"
    )
    return [html, csv, plain]


def page(table: pd.DataFrame, doubts: Sequence[str] = ()) -> str:
    """The page's text."""
    context: dict[str, Any] = {
        "figures": [_figure(str(name), own) for name, own in table.groupby("metric", sort=False)],
        "doubts": doubts,
        "version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return assets.render("trend.html", context, entry="plain.js", styles=("trend.css",))


def _figure(name: str, own: pd.DataFrame) -> dict[str, Any]:
    metric = BY_NAME[name]
    known = own["value"].dropna().abs().tolist()
    shown = quantities.scale(metric.unit, known)
    rows = own.to_dict("records")
    return {
        "label": label(name),
        "unit": shown.symbol,
        "definition": metric.definition,
        "rows": [
            {
                "baseline": row["baseline"],
                "saved": row["saved"],
                "value": shown.text(row["value"]),
                "std": shown.text(row["std"]) if quantities.is_known(row["std"]) else "",
                "repeats": row["repeats"],
                "change": change(row),
            }
            for row in rows
        ],
        "points": _points(rows),
        "top": shown.text(max(known)),
        "width": _WIDTH,
        "height": _HEIGHT,
    }


def _points(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where each known value lies, from 0 at the foot to the greatest; its spread is one deviation each way."""
    top = max(float(row["value"]) + _number(row["std"]) for row in rows if quantities.is_known(row["value"])) or 1.0
    across = (_WIDTH - 2 * _EDGE) / max(len(rows) - 1, 1)
    up = (_HEIGHT - 2 * _EDGE) / top
    return [
        {
            "x": round(_EDGE + place * across, 1),
            "y": round(_HEIGHT - _EDGE - float(row["value"]) * up, 1),
            "spread": round(_number(row["std"]) * up, 1),
            "name": row["baseline"],
        }
        for place, row in enumerate(rows)
        if quantities.is_known(row["value"])
    ]


def _number(value: Any) -> float:
    return float(value) if quantities.is_known(value) else 0.0
