"""Joined tables and figures of a comparison as people read them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from traceanalyzer.analyses import column_named
from traceanalyzer.diff import Capture, Comparison, TableDiff, metrics
from traceanalyzer.diff.metrics import BY_NAME
from traceanalyzer.meaning.columns import ABSENT, Column, Scale, Unit, digits, is_known, scale, signed, stem
from traceanalyzer.meaning.vocabulary import COMM_PARTS, IDLE_PARTS, OPAQUE, PARTS, UNMATCHED
from traceanalyzer.report.comparison import DiffReport
from traceanalyzer.report.comparison.sentences import each, per
from traceanalyzer.report.layout import LAYOUT
from traceanalyzer.report.page.table_view import Cell, Heading
from traceanalyzer.report.words import label, words
from traceanalyzer.report.writers.tables import write_frame
from traceanalyzer.snapshots.comparison import CATEGORY, COLUMNS, PEAK, MemoryChange, change_sentences

# A joined table as people read it: short names, one unit a column, a bar for each row's change.


_SHOWN: tuple[str, ...] = (
    "calls", "copies", "size_bytes", "transfer_ns", "wait_ns", "exposed_ns", "exposed_wait_ns", "busbw_gbps",
)  # fmt: skip
"""Sums that are shown beside the time."""

_SPLIT: tuple[tuple[str, str], ...] = (("transfer_ns", "transfer"), ("wait_ns", "wait"))
"""Sums that the time of a communication call is made of, and their looks."""

_OF_KIND = {"compute": "compute", "comm": "both", "copy": "copy"}
"""Looks of rows of one kind: what communicates is transfer and wait together."""

_OF_CATEGORY = {"communication": "both", "copy": "copy"}
"""Looks of rows of one category of kernels; all others compute."""

_PLAIN = "change"

POINTS = "pp"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a row's bar, from `at` for `width` percent of the bar's place; growth lies to the right."""

    look: str
    at: float
    width: float


@dataclass(frozen=True, slots=True)
class Row:
    """One row, and its bar."""

    status: str
    cells: tuple[Cell, ...]
    bar: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A joined table for a page."""

    analysis: str
    title: str
    columns: tuple[Heading, ...]
    rows: tuple[Row, ...]
    total: int
    counts: dict[str, int]


def table_view(table: TableDiff, most: int | None = None) -> View:
    """The table's rows, largest difference first; the first `most` of them."""
    frame = table.frame.head(most) if most else table.frame
    made = [*_key_columns(frame, table.keys), *_number_columns(frame, table.time)]
    cells = list(zip(*(values for _, values in made), strict=True)) if made else []
    rows = tuple(
        Row(str(status), own, bar) for status, own, bar in zip(frame["status"], cells, _bars(frame, table), strict=True)
    )
    return View(
        table.analysis, table.title, tuple(column for column, _ in made), rows, len(table.frame), table.counts()
    )


def _bars(frame: pd.DataFrame, table: TableDiff) -> list[tuple[Piece, ...]]:
    """Each row's change, transfer and wait apart where they are known; the longest bar takes half of the place."""
    if not table.time:
        return [()] * len(frame)
    looks = _looks(frame)
    is_comm = "collective" in frame
    pieces = [
        _pieces(row, table.time, "both" if is_comm else look)
        for row, look in zip(frame.to_dict("records"), looks, strict=True)
    ]
    reaches = (sum(max(sign * change, 0) for _, change in own) for own in pieces for sign in (1, -1))
    widest = max(reaches, default=0.0)
    return [tuple(_placed(own, widest)) if widest else () for own in pieces]


def _looks(frame: pd.DataFrame) -> list[str]:
    if "kind" in frame:
        return [_OF_KIND.get(str(kind), _PLAIN) for kind in frame["kind"]]
    if "category" in frame:
        return [_OF_CATEGORY.get(str(category), "compute") for category in frame["category"]]
    return [_PLAIN] * len(frame)


def _pieces(row: Mapping[Any, Any], time: str, look: str) -> list[tuple[str, float]]:
    """Look and change in ns of each."""
    found = [(own, row.get(f"change_{name}")) for name, own in _SPLIT]
    if not all(is_known(change) for _, change in found):
        found = [(look, row[f"change_{time}"])]
    return [(own, float(change)) for own, change in found if is_known(change) and change]


def _placed(pieces: list[tuple[str, float]], widest: float) -> Iterator[Piece]:
    more = less = 50.0
    for look, change in pieces:
        width = 50 * abs(change) / widest
        if change < 0:
            less -= width
            yield Piece(look, less, width)
        else:
            yield Piece(look, more, width)
            more += width


def _key_columns(frame: pd.DataFrame, keys: tuple[str, ...]) -> list[tuple[Heading, list[Cell]]]:
    made = []
    for key in keys:
        if key == "activity":  # the name tells
            continue
        if frame[key].notna().any():
            column = column_named(key)
            heading = Heading(key, label(key, column), "", "", is_number=False)
            made.append((heading, [_text(value, column) for value in frame[key]]))
    if "other_name" in frame and frame["other_name"].notna().any():
        others = (_text(value, column_named("name")) for value in frame["other_name"])
        names = [
            Cell(f"{one.text} → {two.text}" if two.text != ABSENT else one.text,
                 f"{one.full or one.text} → {two.full or two.text}" if two.text != ABSENT else one.full)
            for one, two in zip(made[0][1], others, strict=True)
        ]  # fmt: skip
        made[0] = (made[0][0], names)
    return made


def _text(value: object, column: Column) -> Cell:
    if not is_known(value):
        return Cell(ABSENT)
    full = str(value)
    shown = " + ".join(words(part, column) for part in full.split(" + "))
    return Cell(shown, full if shown != full else "")


def _number_columns(frame: pd.DataFrame, time: str | None) -> list[tuple[Heading, list[Cell]]]:
    made = []
    is_split = all(f"change_{name}" in frame and frame[f"change_{name}"].notna().all() for name, _ in _SPLIT)
    left = {"exposed_wait_ns"} if is_split else dict(_SPLIT)  # transfer and wait add up to the time
    for name in (*(one for one in _SHOWN if one not in left), *((time,) if time and not is_split else ())):
        if f"base_{name}" in frame:
            column = column_named(name)
            heads = {f"{side}_{name}": f"{label(name, column)} {side}" for side in ("base", "other")}
            made += _numbers(frame, heads, column.unit)
    changes = {f"change_{time}": "change", f"change_{time}_pct": "change", "change_share_pct_points": "share"}
    for name, head in changes.items() if time else ():
        made += _numbers(frame, {name: head}, Column.named(name).unit, signed=True)
    if time:
        made[-1] = (replace(made[-1][0], unit=POINTS), made[-1][1])
    return made


def _numbers(
    frame: pd.DataFrame, heads: Mapping[str, str], unit: Unit, *, signed: bool = False
) -> list[tuple[Heading, list[Cell]]]:
    """Columns that share their unit, each under its heading."""
    used = scale(unit, pd.concat([frame[name] for name in heads]).abs().dropna().tolist())
    return [
        (Heading(name, head, used.symbol, "", is_number=True), [_number(value, used, signed) for value in frame[name]])
        for name, head in heads.items()
    ]


def _number(value: object, used: Scale, signed: bool) -> Cell:
    if not is_known(value):
        return Cell(ABSENT)
    number = float(value)  # type: ignore[arg-type]
    shown = used.text(number) if number else digits(0)
    return Cell(f"+{shown}" if signed and number > 0 else shown, repr(number))


# The figures of a comparison side by side: a row each, a column for each run, as pages and Markdown show them.


_RARE = frozenset(part.column for part in (OPAQUE, UNMATCHED, *IDLE_PARTS))

_LABELS = {part.column: part.label for part in (*PARTS, *COMM_PARTS, *IDLE_PARTS)}

_WORDS = {"comm": "communication", "std": "standard deviation", "mfu": "MFU"}
"""What a page calls parts of figures' names."""


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
    is_nothing: bool
    """No run has any of it."""


def rows(comparison: Comparison) -> list[FiguresRow]:
    """Every figure that some run has; parts that are rare only where there is any of them."""
    return [
        _row(comparison, str(name), own.set_index("run"))
        for name, own in comparison.metrics.groupby("metric", sort=False)
        if name not in _RARE or own["value"].any()
    ]


def is_of_single_captures(comparison: Comparison) -> bool:
    """Whether the noise of some change is unknown because a run was captured once."""
    return bool((comparison.metrics["significance"] == metrics.CANNOT_TELL).any())


def _row(comparison: Comparison, name: str, own: pd.DataFrame) -> FiguresRow:
    known = own["value"].dropna().abs()
    largest = float(known.max()) if len(known) else 0.0
    shown = scale(BY_NAME[name].unit, known.tolist())
    is_said = name == "step_ns" and per(comparison) == "per step"
    metric, scaled = BY_NAME[name], comparison.fairness.scale
    has_suffix = metric.per_step and not is_said and (scaled.per_token or not metric.of_one_step)
    suffix = (each(comparison) if shown.symbol else per(comparison)) if has_suffix else ""
    values = tuple(_value(own.loc[run], shown, largest) for run in comparison.runs)
    return FiguresRow(
        name, _label(name), f"{shown.symbol}{suffix}".strip(), str(own["definition"].iloc[0]), values, largest == 0
    )


def _label(name: str) -> str:
    if name in _LABELS:
        return _LABELS[name]
    return " ".join(_WORDS.get(word, word) for word in stem(name).split("_"))


def _value(row: pd.Series, shown: Scale, largest: float) -> Value:
    if not is_known(row["value"]):
        return Value(ABSENT, "", "", "", "", 0.0)
    low, high = row["rank_min"], row["rank_max"]
    spread = (
        f"{shown.text(float(low))} to {shown.text(float(high))} over ranks" if is_known(low) and low != high else ""
    )
    if is_known(row["std"]):
        spread = f"± {shown.text(float(row['std']))}, n = {row['repeats']}" + (f"; {spread}" if spread else "")
    change, unit = _change(row)
    width = 100 * abs(float(row["value"])) / largest if largest else 0.0
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

MOST_RANKS, MOST_SITES = 4, 10
"""On a page: the ranks whose peaks changed most, and of each so many lines; `memory.csv` has all."""


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
    first = peaks["change_bytes"].abs().sort_values(ascending=False, kind="stable").index[:MOST_RANKS]
    ranks = peaks.loc[first, "rank"]
    own = table[table["rank"].isin(ranks) | (table["rank"].isna() & ranks.isna().any())]
    place = own.groupby(["rank", "of"], dropna=False).cumcount()
    return own[place < MOST_SITES]


def write_csv(memory: Memory, folder: Path) -> list[Path]:
    """`memory.csv`, where there is anything to write."""
    table = frame(memory)
    if table.empty:
        return []
    path = folder / "memory.csv"
    write_frame(table, path)
    return [path]
