"""Baselines over time, as a page, as files and in the terminal."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape

from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.diff.captures import world_size
from traceanalyzer.diff.metrics import BY_NAME
from traceanalyzer.diff.trend import COLUMNS, Kept, trend
from traceanalyzer.meaning import columns
from traceanalyzer.meaning.columns import Column, is_known
from traceanalyzer.report import assets, words
from traceanalyzer.report.printed import table_of, unwrapped
from traceanalyzer.report.words import change_text
from traceanalyzer.report.writers import write_text
from traceanalyzer.report.writers.tables import write_frame

# Baselines over time as one HTML page that needs no network, as CSV and as JSON.


def write(table: pd.DataFrame, doubts: Sequence[str], folder: Path) -> list[Path]:
    """`trend.html`, `trend.csv` and `trend.json`."""
    html, csv = write_text(folder / "trend.html", page(table, doubts)), folder / "trend.csv"
    write_frame(table, csv)
    content = {"columns": COLUMNS, "rows": plain_rows(table), "not_the_same_work": list(doubts)}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    return [html, csv, write_text(folder / "trend.json", text)]


def page(table: pd.DataFrame, doubts: Sequence[str] = ()) -> str:
    """The page's text."""
    context: dict[str, Any] = {
        "figures": [_figure(str(name), own) for name, own in table.groupby("metric", sort=False)],
        "doubts": doubts,
    }
    return assets.render("trend.html", context, entry="plain.js", styles=("diff.css",))


def _figure(name: str, own: pd.DataFrame) -> dict[str, Any]:
    known = own["value"].dropna().abs().tolist()
    shown = columns.scale(BY_NAME[name].unit, known)
    return {
        "label": _label(name),
        "unit": shown.symbol,
        "definition": BY_NAME[name].definition,
        "rows": [
            {
                **row,
                "value": shown.text(row["value"]),
                "std": shown.text(row["std"]) if is_known(row["std"]) else "",
                "change": change_text(row),
                "width": 100 * abs(row["value"]) / (max(known) or 1.0) if is_known(row["value"]) else 0.0,
            }
            for row in own.to_dict("records")
        ],
    }


def _label(metric: str) -> str:
    """`step`, `exposed communication`."""
    return words.label(metric, Column.of(metric))


# Baselines and their trend, printed.


_BARS = "▁▂▃▄▅▆▇█"

_LISTED = ("step_ns", "exposed_comm_pct", "idle_pct")


def facts(baselines: Sequence[Kept]) -> list[dict[str, Any]]:
    """What `baseline list` tells of each; absent is `None`."""
    table = trend(baselines, _LISTED)
    values = {(row["baseline"], row["metric"]): row["value"] for row in plain_rows(table)}
    return [
        {
            "name": one.name,
            "saved": one.saved,
            "of": one.side.label if one.side else None,
            "captures": len(one.side.captures) if one.side else None,
            "ranks": world_size(one.side.first) if one.side else None,
            "basis": one.side.first.basis if one.side else None,
            **{name: values.get((one.name, name)) for name in _LISTED},
            "why_not": one.why_not,
        }
        for one in baselines
    ]


def show_list(baselines: Sequence[Kept], console: Console) -> None:
    """A row for each baseline."""
    rows = []
    for row in facts(baselines):
        figures = [columns.text(row[name], BY_NAME[name].unit) for name in _LISTED]
        cells = [
            columns.ABSENT if row[name] is None else str(row[name]) for name in ("of", "captures", "ranks", "basis")
        ]
        unread = ["cannot be read", *[""] * (len(cells) + len(figures))]
        rows.append([row["name"], *(unread if row["why_not"] else [_minute(row["saved"]), *cells, *figures])])
    heads = ["Name", "Saved (UTC)", "Of", "n", "Ranks", "Basis", *(_label(name).capitalize() for name in _LISTED)]
    table = table_of(heads, rows, texts=3, pad_edge=False, padding=(0, 1))
    for column in table.columns[:5]:
        column.no_wrap = True
    console.print(table)
    for one in baselines:
        if one.why_not:
            unwrapped(console)(f"[yellow]Note:[/] {escape(one.why_not)}")


def show_trend(table: pd.DataFrame, doubts: Sequence[str], console: Console) -> None:
    """For each figure a small chart and a row for each baseline."""
    say = unwrapped(console)
    for name, own in table.groupby("metric", sort=False):
        say(f"[bold]{_label(str(name))}[/] {spark(own['value'])}")
        for row in own.to_dict("records"):
            moved = change_text(row)
            value = f"{columns.text(row['value'], BY_NAME[str(name)].unit)}{f' ({moved})' if moved else ''}"
            say(f"  {escape(row['baseline'])}, {_minute(row['saved'])}: {value}")
    for reason in doubts:
        say(f"[yellow]Not the same work:[/] {escape(reason)}")


def spark(values: pd.Series) -> str:
    """Bars from 0 to the greatest value; a blank where there is none."""
    top = values.max() or 1.0
    return "".join(" " if pd.isna(value) else _BARS[round(value / top * (len(_BARS) - 1))] for value in values)


def _minute(saved: Any) -> str:
    """A date for people, to the minute."""
    return saved[:16].replace("T", " ") if is_known(saved) else "date not known"
