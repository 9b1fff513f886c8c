"""Baselines and their trend, printed."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from traceanalyzer.diff.metrics import BY_NAME
from traceanalyzer.diff.scales import world_size
from traceanalyzer.diff.trend import Kept, trend
from traceanalyzer.meaning import quantities
from traceanalyzer.report.trend.rows import change, label

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
        told = [row["name"], _minute(row["saved"]), *(row[name] for name in ("of", "captures", "ranks", "basis"))]
        figures = [quantities.text(row[name], BY_NAME[name].unit) for name in _LISTED]
        table.add_row(*(quantities.ABSENT if one is None else escape(str(one)) for one in told), *figures)
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
            told = f"{quantities.text(row['value'], metric.unit)}{f' ({moved})' if moved else ''}"
            console.print(f"  {escape(row['baseline'])}, {_minute(row['saved'])}: {told}", highlight=False)
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
    return saved[:16].replace("T", " ") if quantities.is_known(saved) else "date not known"


def _plain(value: Any) -> float | None:
    return float(value) if quantities.is_known(value) else None
