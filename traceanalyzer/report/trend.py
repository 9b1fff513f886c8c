"""Baselines over time: what is kept, how their figures went, as a page, as files and in the terminal."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape

from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.diff import judge, metrics
from traceanalyzer.diff.captures import STEP, Side, world_size
from traceanalyzer.diff.metrics import BY_NAME
from traceanalyzer.diff.sources import baseline_names, read_baseline
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.meaning import columns
from traceanalyzer.meaning.columns import Column, Unit, is_known
from traceanalyzer.report import assets, words
from traceanalyzer.report.table_view import table_of, unwrapped
from traceanalyzer.report.words import change_text
from traceanalyzer.report.writers import write_text
from traceanalyzer.report.writers.tables import write_frame

COLUMNS = {
    "metric": "Figure; its name ends in its unit.",
    "baseline": "Name of the baseline.",
    "saved": "When it was saved (UTC); absent for baselines of versions that did not note it.",
    "value": "Mean over ranks and repeats.",
    "std": "Sample standard deviation of the repeats; absent with fewer than two.",
    "repeats": "Captures in it that tell the figure.",
    "change_pct": "Difference to the baseline before it as percent of that one's value; absent for percentages.",
    "change_pct_points": "The same of a percentage, in percentage points.",
}

FIGURES: tuple[str, ...] = (
    "step_ns",
    "exposed_comm_pct",
    "idle_pct",
    "overlap_pct",
    "tokens_per_s",
    "peak_reserved_bytes",
)
"""Those that are shown unless others are named."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One baseline; `why_not` says why it cannot be read, and then it has no side."""

    name: str
    saved: str | None
    side: Side | None
    why_not: str | None = None


def kept(names: Sequence[str] = ()) -> list[Kept]:
    """The baselines that are kept, or the named ones: the oldest first, those without a date before all.

    Raises:
        InputError: a named one is not there.
    """
    found = []
    for name in names or baseline_names():
        try:
            found.append(Kept(name, *read_baseline(name)))
        except InputError as error:
            if names:
                raise
            found.append(Kept(name, None, None, str(error)))
    return sorted(found, key=lambda one: one.saved or "")


def trend(baselines: Sequence[Kept], figures: Sequence[str] = FIGURES) -> pd.DataFrame:
    """A row for each figure and baseline, in their order, with `COLUMNS`; figures that none tells are left out.

    Raises:
        UsageError: a figure does not exist.
    """
    unknown = [name for name in figures if name not in metrics.BY_NAME]
    if unknown:
        raise UsageError(f"no figure is called {unknown[0]!r}; there are {', '.join(metrics.BY_NAME)}")
    sides = [Side.of(one.name, one.side.captures) for one in baselines if one.side is not None]
    table = metrics.table(sides, STEP, [metrics.BY_NAME[name] for name in figures])
    table = table.rename(columns={"run": "baseline"}).drop(columns=["change_pct", "change_pct_points"])
    table["saved"] = table["baseline"].map({one.name: one.saved for one in baselines})
    table["repeats"] = table["values"].map(len)
    before = table.groupby("metric")["value"].transform(lambda values: values.ffill().shift())
    is_share = table["metric"].map(lambda name: metrics.BY_NAME[name].unit is Unit.PCT).astype(bool)
    change = (table["value"] - before).astype("Float64")
    table["change_pct"] = (100 * change / before.where(before != 0)).mask(is_share)
    table["change_pct_points"] = change.where(is_share)
    return table[list(COLUMNS)].convert_dtypes()


def doubts(baselines: Sequence[Kept]) -> tuple[str, ...]:
    """Why the figures should not be put beside each other; none where the baselines did the same work."""
    sides = [one.side for one in baselines if one.side is not None]
    return judge(sides).refusals if len(sides) > 1 else ()


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
