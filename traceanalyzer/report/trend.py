"""Baselines over time, as a page, as files and in the terminal."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.diff.captures import world_size
from traceanalyzer.diff.metrics import BY_NAME
from traceanalyzer.diff.trend import COLUMNS, Kept, trend
from traceanalyzer.meaning import columns
from traceanalyzer.meaning.columns import Column, digits, is_known
from traceanalyzer.report import assets, words
from traceanalyzer.report.layout import LAYOUT
from traceanalyzer.report.writers.tables import write_frame

# How a figure of a trend is called, and how its change is written.


def label(metric: str) -> str:
    """`step`, `exposed communication`."""
    return words.label(metric, Column.of(metric))


def change(row: Mapping[str, Any]) -> str:
    """`+3.2%`, `−1.5 pp`; empty where there is none."""
    for column, unit in (("change_pct", "%"), ("change_pct_points", " pp")):
        if is_known(row[column]):
            value = float(row[column])
            return f"{'+' if value > 0 else ''}{digits(value)}{unit}"
    return ""


# Baselines over time as one HTML page that needs no network, as CSV and as JSON.


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
    }
    return assets.render("trend.html", context, entry="plain.js", styles=("trend.css",))


def _figure(name: str, own: pd.DataFrame) -> dict[str, Any]:
    metric = BY_NAME[name]
    known = own["value"].dropna().abs().tolist()
    shown = columns.scale(metric.unit, known)
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
                "std": shown.text(row["std"]) if columns.is_known(row["std"]) else "",
                "repeats": row["repeats"],
                "change": change(row),
            }
            for row in rows
        ],
        "points": _points(rows),
        "top": shown.text(max(known)),
        "width": LAYOUT.trend_width,
        "height": LAYOUT.trend_height,
    }


def _points(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where each known value lies, from 0 at the foot to the greatest; its spread is one deviation each way."""
    top = max(float(row["value"]) + _number(row["std"]) for row in rows if columns.is_known(row["value"])) or 1.0
    across = (LAYOUT.trend_width - 2 * LAYOUT.trend_edge) / max(len(rows) - 1, 1)
    up = (LAYOUT.trend_height - 2 * LAYOUT.trend_edge) / top
    return [
        {
            "x": round(LAYOUT.trend_edge + place * across, 1),
            "y": round(LAYOUT.trend_height - LAYOUT.trend_edge - float(row["value"]) * up, 1),
            "spread": round(_number(row["std"]) * up, 1),
            "name": row["baseline"],
        }
        for place, row in enumerate(rows)
        if columns.is_known(row["value"])
    ]


def _number(value: Any) -> float:
    return float(value) if columns.is_known(value) else 0.0


# Baselines and their trend, printed.


_BARS = "▁▂▃▄▅▆▇█"

_LISTED = ("step_ns", "exposed_comm_pct", "idle_pct")


def facts(baselines: Sequence[Kept]) -> list[dict[str, Any]]:
    """What `baseline list` tells of each; absent is `None`."""
    table = trend(baselines, _LISTED)
    values = {(row["baseline"], row["metric"]): row["value"] for row in table.to_dict("records")}
    return [
        {
            "name": one.name,
            "saved": one.saved,
            "of": one.side.label if one.side else None,
            "captures": len(one.side.captures) if one.side else None,
            "ranks": world_size(one.side.first) if one.side else None,
            "basis": one.side.first.basis if one.side else None,
            **{name: _plain(values.get((one.name, name))) for name in _LISTED},
            "why_not": one.why_not,
        }
        for one in baselines
    ]


def show_list(baselines: Sequence[Kept], console: Console) -> None:
    """A row for each baseline."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("Name", "Saved (UTC)", "Of", "n", "Ranks", "Basis"):
        table.add_column(name, justify="right" if name in ("n", "Ranks") else "left", no_wrap=name != "Basis")
    for name in _LISTED:
        table.add_column(label(name).capitalize(), justify="right")
    for row in facts(baselines):
        if row["why_not"]:
            table.add_row(escape(row["name"]), "cannot be read")
            continue
        cells = [row["name"], _minute(row["saved"]), *(row[name] for name in ("of", "captures", "ranks", "basis"))]
        figures = [columns.text(row[name], BY_NAME[name].unit) for name in _LISTED]
        table.add_row(*(columns.ABSENT if one is None else escape(str(one)) for one in cells), *figures)
    console.print(table)
    for one in baselines:
        if one.why_not:
            console.print(f"[yellow]Note:[/] {escape(one.why_not)}", highlight=False, soft_wrap=True)


def show_trend(table: pd.DataFrame, doubts: Sequence[str], console: Console) -> None:
    """For each figure a small chart and a row for each baseline."""
    for name, own in table.groupby("metric", sort=False):
        metric = BY_NAME[str(name)]
        console.print(f"[bold]{label(metric.name)}[/] {spark(own['value'])}", highlight=False)
        for row in own.to_dict("records"):
            moved = change(row)
            value = f"{columns.text(row['value'], metric.unit)}{f' ({moved})' if moved else ''}"
            console.print(f"  {escape(row['baseline'])}, {_minute(row['saved'])}: {value}", highlight=False)
    for reason in doubts:
        console.print(f"[yellow]Not the same work:[/] {escape(reason)}", highlight=False, soft_wrap=True)


def spark(values: pd.Series) -> str:
    """Bars from 0 to the greatest value; a blank where there is none."""
    top = values.max()
    if pd.isna(top):
        return ""
    return "".join(
        " " if pd.isna(value) else _BARS[round(value / top * (len(_BARS) - 1)) if top else 0] for value in values
    )


def _minute(saved: Any) -> str:
    """A date for people, to the minute."""
    return saved[:16].replace("T", " ") if columns.is_known(saved) else "date not known"


def _plain(value: Any) -> float | None:
    return float(value) if columns.is_known(value) else None
