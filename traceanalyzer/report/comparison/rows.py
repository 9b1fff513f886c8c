"""Joined tables and figures of a comparison as people read them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from traceanalyzer.analyses import column_named
from traceanalyzer.diff import Capture, Comparison, TableDiff, metrics
from traceanalyzer.diff.metrics import BY_NAME
from traceanalyzer.meaning.columns import ABSENT, Column, Scale, digits, is_known, scale, signed
from traceanalyzer.meaning.vocabulary import COMM_PARTS, IDLE_CAUSES, PARTS
from traceanalyzer.report.comparison import DiffReport
from traceanalyzer.report.comparison.sentences import each, per
from traceanalyzer.report.layout import LAYOUT
from traceanalyzer.report.page.rows import Box
from traceanalyzer.report.page.table_view import Cell, Heading, column_view
from traceanalyzer.report.words import label
from traceanalyzer.report.writers.tables import write_frame
from traceanalyzer.snapshots.comparison import CATEGORY, COLUMNS, PEAK, MemoryChange, change_sentences

# A joined table as people read it: short names, both runs' values in one cell, a bar for each row's change.


TABLES: tuple[str, ...] = (
    "collectives", "comm_phases", "operators", "kernel_operations", "kernels", "copies", "cuda_api", "modules",
    "matrix_products", "critical_path", "phases",
)  # fmt: skip
"""The joined tables of a page, in order; those in which nothing differs, and all others, are files."""

_SHOWN: tuple[str, ...] = (
    "calls", "copies", "size_bytes", "transfer_ns", "wait_ns", "exposed_ns", "exposed_wait_ns", "busbw_gbps",
)  # fmt: skip
"""Sums that are shown beside the time."""

_SPLIT: tuple[tuple[str, str], ...] = (("transfer_ns", "transfer"), ("wait_ns", "wait"))
"""Sums that the time of a communication call is made of, and their looks."""

_LOOKS = {"compute": "compute", "comm": "both", "communication": "both", "copy": "copy"}
"""Looks of rows by kind or category: what communicates is transfer and wait together."""

_BOTH, POINTS = "both", "pp"


@dataclass(frozen=True, slots=True)
class JoinedRow:
    """One row, and its bar: boxes around the middle of the bar's place, growth to the right."""

    status: str
    cells: tuple[Cell, ...]
    bar: tuple[Box, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinedView:
    """A joined table for a page; `file` is its name in `tables/`."""

    title: str
    columns: tuple[Heading, ...]
    rows: tuple[JoinedRow, ...]
    total: int
    counts: Mapping[str, int]
    file: str


def joined_view(table: TableDiff, run: str = "", most: int | None = None) -> JoinedView:
    """The table's rows, largest difference first; the first `most` of them."""
    frame = table.frame.head(most) if most else table.frame
    made = [*_key_columns(frame, table.keys), *_number_columns(frame, table.time)]
    cells = zip(*(values for _, values in made), strict=True)
    rows = map(JoinedRow, frame["status"].astype("str"), cells, _bars(frame, table.time))
    file = f"{table.analysis}__{plain_name(run)}"
    return JoinedView(table.title, tuple(head for head, _ in made), tuple(rows), len(table.frame), table.counts(), file)


def plain_name(run: str) -> str:
    """A run's name as part of a file name."""
    return re.sub(r"[^\w.-]+", "-", run).strip("-") or "run"


def _bars(frame: pd.DataFrame, time: str | None) -> list[tuple[Box, ...]]:
    """Each row's change, transfer and wait apart where they are known; the longest bar takes half of the place."""
    if not time:
        return [()] * len(frame)
    look = next((frame[name] for name in ("kind", "category") if name in frame), pd.Series("change", frame.index))
    looks = look.astype("str").map(_LOOKS).fillna("compute" if "category" in frame else "change")
    if "collective" in frame:
        looks[:] = _BOTH
    rows = zip(frame.to_dict("records"), looks, strict=True)
    return around_the_middle([_pieces(row, time, look) for row, look in rows])


def _pieces(row: Mapping[Any, Any], time: str, look: str) -> list[tuple[str, float]]:
    """Look and change in ns of each."""
    found = [(own, row.get(f"change_{name}")) for name, own in _SPLIT]
    if not all(is_known(change) for _, change in found):
        found = [(look, row[f"change_{time}"])]
    return [(own, float(change)) for own, change in found if is_known(change) and change]


def around_the_middle(rows: Sequence[Sequence[tuple[str, float]]]) -> list[tuple[Box, ...]]:
    """Of each row's looks and changes boxes on one scale: what is more lies to the right of 50%, what is less left."""
    reaches = [sum(max(sign * change, 0) for _, change in row) for row in rows for sign in (1, -1)]
    widest = max(reaches, default=0) or 1
    made = []
    for row in rows:
        more = less = 50.0
        boxes = []
        for look, change in row:
            width = 50 * abs(change) / widest
            less -= width if change < 0 else 0
            boxes.append(Box(less if change < 0 else more, width, look, ""))
            more += width if change > 0 else 0
        made.append(tuple(boxes))
    return made


def _key_columns(frame: pd.DataFrame, keys: tuple[str, ...]) -> list[tuple[Heading, list[Cell]]]:
    known = [key for key in keys if key != "activity" and frame[key].notna().any()]  # the name tells the activity
    made = [column_view(frame[key], replace(column_named(key), definition="")) for key in known]
    if "other_name" in frame and frame["other_name"].notna().any():
        _, others = column_view(frame["other_name"], column_named("name"))
        made[0] = (made[0][0], [_arrow(one, two) for one, two in zip(made[0][1], others, strict=True)])
    return made


def _arrow(one: Cell, two: Cell) -> Cell:
    """`a → b`; one of them where they read alike or there is no other."""
    if two.text in (ABSENT, one.text):
        return one
    return Cell(f"{one.text} → {two.text}", f"{one.full or one.text} → {two.full or two.text}")


def _number_columns(frame: pd.DataFrame, time: str | None) -> list[tuple[Heading, list[Cell]]]:
    """The change of the time first, then both runs' values of it and of the other sums."""
    made = []
    for name in (f"change_{time}", f"change_{time}_pct", "change_share_pct_points") if time else ():
        head = "share" if name.endswith("points") else "change"
        made.append(column_view(frame[name], Column.of(name), head, is_signed=True))
    if time:
        made[-1] = (replace(made[-1][0], unit=POINTS), made[-1][1])
    is_split = all(f"change_{name}" in frame and frame[f"change_{name}"].notna().all() for name, _ in _SPLIT)
    left_out = {"exposed_wait_ns"} if is_split else dict(_SPLIT)  # transfer and wait add up to the time
    shown = [*([time] if time and not is_split else []), *(name for name in _SHOWN if name not in left_out)]
    return [*made, *(_both_runs(frame, name, column_named(name)) for name in shown if f"base_{name}" in frame)]


def _both_runs(frame: pd.DataFrame, name: str, column: Column) -> tuple[Heading, list[Cell]]:
    """Both runs' values in one unit: `149 → 14`."""
    sides = [frame[f"base_{name}"], frame[f"other_{name}"]]
    head, cells = column_view(pd.concat(sides, ignore_index=True).rename(name), column)
    pairs = zip(cells[: len(frame)], cells[len(frame) :], strict=True)
    return head, [Cell(one.text if one.text == two.text else f"{one.text} → {two.text}") for one, two in pairs]


# The figures of a comparison side by side: a row each, a column for each run, as pages and Markdown show them.


_LABELS = {
    **{part.column: part.label for part in (*PARTS, *COMM_PARTS)},
    **{f"idle_{cause.column}": cause.part.label for cause in IDLE_CAUSES},
}


@dataclass(frozen=True, slots=True)
class Value:
    """One run's value of a figure: text, spread, change, and the length of its bar in percent."""

    text: str
    spread: str
    change: str
    change_unit: str
    significance: str
    width: float

    @property
    def change_text(self) -> str:
        """`+2.91%`, `+1.3 pp`; empty where there is none."""
        return f"{self.change}{' ' if self.change_unit == POINTS else ''}{self.change_unit}"


@dataclass(frozen=True, slots=True)
class FiguresRow:
    """One figure; its unit stands once for all runs."""

    metric: str
    label: str
    unit: str
    definition: str
    cells: tuple[Value, ...]


def rows(comparison: Comparison) -> list[FiguresRow]:
    """Every figure of which some run has any."""
    return [
        _row(comparison, str(name), own.set_index("run"))
        for name, own in comparison.metrics.groupby("metric", sort=False)
        if own["value"].any()
    ]


def is_of_single_captures(comparison: Comparison) -> bool:
    """Whether the noise of some change is unknown because a run was captured once."""
    return bool((comparison.metrics["significance"] == metrics.CANNOT_TELL).any())


def _row(comparison: Comparison, name: str, own: pd.DataFrame) -> FiguresRow:
    known = own["value"].dropna().abs().tolist()
    metric, scaled = BY_NAME[name], comparison.fairness.scale
    shown = scale(metric.unit, known)
    is_plain = not metric.per_step or (name == "step_ns" and per(comparison) == "per step")
    has_suffix = not is_plain and (scaled.per_token or not metric.of_one_step)
    suffix = (each(comparison) if shown.symbol else per(comparison)) if has_suffix else ""
    values = tuple(_value(own.loc[run], shown, max(known)) for run in comparison.runs)
    return FiguresRow(name, _label(name), f"{shown.symbol}{suffix}".strip(), str(own["definition"].iloc[0]), values)


def _label(name: str) -> str:
    return _LABELS.get(name) or label(name, Column.of(name))


def _value(row: pd.Series, shown: Scale, largest: float) -> Value:
    if not is_known(row["value"]):
        return Value(ABSENT, "", "", "", "", 0.0)
    ends = [shown.text(float(row[end])) for end in ("rank_min", "rank_max") if is_known(row[end])]
    spread = " to ".join(ends) if len({*ends}) > 1 else ""
    if is_known(row["std"]):
        spread = f"± {shown.text(float(row['std']))}, n = {row['repeats']}" + (f"; {spread}" if spread else "")
    change, unit = _change(row)
    width = 100 * abs(float(row["value"])) / largest
    return Value(shown.text(float(row["value"])), spread, change, unit, _significance(row), width)


def _change(row: pd.Series) -> tuple[str, str]:
    """Percent of the base's value, or points of a percentage: never one for the other."""
    if is_known(row["change_pct_points"]):
        return signed(float(row["change_pct_points"])), POINTS
    if is_known(row["change_pct"]):
        pct = float(row["change_pct"])
        return (signed(pct) if pct <= LAYOUT.change_pct else f"> {signed(LAYOUT.change_pct)}"), "%"
    return "", ""


def _significance(row: pd.Series) -> str:
    says = row["significance"]
    if not is_known(says) or says in (metrics.EQUAL, metrics.CANNOT_TELL):
        return ""
    p = "" if not is_known(row["p_value"]) else f" (p = {digits(float(row['p_value']))})"
    return f"{says}{p}"


# What of each rank's peak of memory is more or less: by the traces' events, and by the snapshots beside them.


EVENTS, SNAPSHOTS = "traces", "snapshots"
"""Where a row comes from: bytes as the allocator rounds them, or as they were asked for."""

CATEGORIES = "memory_categories"
"""The analysis whose joined table stands here, and nowhere else on a page."""

Memory = Mapping[str, Mapping[str, MemoryChange]]
"""Run → source → what changed."""


def of(report: DiffReport) -> Memory:
    """What each source tells of each other run; runs of which none tells are left out."""
    base, *others = report.comparison.sides
    made: dict[str, dict[str, MemoryChange]] = {}
    for side in others:
        table = _of_events(base.first, side.first)
        own = {} if table.empty else {EVENTS: MemoryChange(table, tuple(change_sentences(table)))}
        if side.label in report.snapshots:
            own[SNAPSHOTS] = report.snapshots[side.label]
        if own:
            made[side.label] = own
    return made


def _of_events(base: Capture, other: Capture) -> pd.DataFrame:
    """Rows as of `snapshots.compared`, of ranks that both captures tell; a peak is the sum of its categories."""
    tables = [capture.table(CATEGORIES) for capture in (base, other)]
    if any(table is None for table in tables):
        return pd.DataFrame(columns=list(COLUMNS))
    keys = ["rank", "category"]
    sides = [table.set_index(keys)["peak_bytes"].astype("int64") for table in tables if table is not None]
    both = pd.concat(sides, axis=1, keys=["base_bytes", "other_bytes"]).fillna(0).astype("int64").reset_index()
    shared = set.intersection(*({*side.index.get_level_values("rank")} for side in sides))
    own = both[both["rank"].isin(shared) & both[["base_bytes", "other_bytes"]].any(axis=1)]
    peaks = own.groupby("rank", as_index=False)[["base_bytes", "other_bytes"]].sum()
    parts = own.rename(columns={"category": "name"}).assign(of=CATEGORY)
    table = pd.concat([peaks.assign(of=PEAK, name=PEAK), parts], ignore_index=True)
    table["change_bytes"] = table["other_bytes"] - table["base_bytes"]
    order = pd.DataFrame({"rank": table["rank"], "is_part": table["of"] != PEAK, "size": -table["change_bytes"].abs()})
    return table.loc[order.sort_values([*order]).index, list(COLUMNS)].astype({"rank": "Int64"})


def frame(memory: Memory) -> pd.DataFrame:
    """All rows, with the run and the source that they are of."""
    tables = [
        one.table.assign(run=run, source=source) for run, sources in memory.items() for source, one in sources.items()
    ]
    columns = ["run", "source", *COLUMNS]
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)


def sentences(memory: Memory) -> list[str]:
    """What changed, each with its run and source."""
    return [
        f"{run}, by its {source}: {sentence}"
        for run, sources in memory.items()
        for source, one in sources.items()
        for sentence in one.sentences
    ]


def shown(change: MemoryChange) -> pd.DataFrame:
    """The rows for a page: of the ranks whose peaks changed most, in order of rank, with their first lines."""
    table = change.table
    peaks = table[table["of"] == PEAK]
    first = peaks["change_bytes"].abs().sort_values(ascending=False, kind="stable").index[: LAYOUT.named]
    ranks = peaks.loc[first, "rank"]
    own = table[table["rank"].isin(ranks) | (table["rank"].isna() & ranks.isna().any())]
    place = own.groupby(["rank", "of"], dropna=False).cumcount()
    return own[place < LAYOUT.memory_changes]


def memory_views(memory: Memory) -> list[dict[str, Any]]:
    """For each run and source its sentences, and the rows of `shown` with bars; whether these are all."""
    return [
        {"run": run, "source": source, "sentences": change.sentences, "view": _memory_view(change, run, source)}
        for run, sources in memory.items()
        for source, change in sources.items()
    ]


def _memory_view(change: MemoryChange, run: str, source: str) -> JoinedView:
    frame = shown(change).reset_index(drop=True)
    is_peak = frame["of"] == PEAK
    named = frame.assign(of=frame["of"].replace("site", "line"), name=frame["name"].mask(is_peak, ""))
    changes = frame["change_bytes"]
    made = [
        column_view(named["rank"], column_named("rank")),
        *(column_view(named[name], Column.text("")) for name in ("of", "name")),
        column_view(changes, Column.of("change_bytes"), "change", is_signed=True),
        _both_runs(frame, "bytes", Column.of("bytes")),
    ]
    looks = ["more" if size > 0 else "less" for size in changes]
    bars = around_the_middle([[(look, float(size))] for look, size in zip(looks, changes, strict=True)])
    rows = (JoinedRow("", *row) for row in zip(zip(*(cells for _, cells in made), strict=True), bars, strict=True))
    file = f"memory__{source}__{run}"
    return JoinedView("Peak of memory", tuple(head for head, _ in made), tuple(rows), len(change.table), {}, file)


def write_csv(memory: Memory, folder: Path) -> list[Path]:
    """`memory.csv`, where there is anything to write."""
    table = frame(memory)
    if table.empty:
        return []
    path = folder / "memory.csv"
    write_frame(table, path)
    return [path]
