"""What pages and files show of a comparison: figures side by side, joined tables, parts of a step, memory."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from traceanalyzer.analyses import column_named
from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.diff import Capture, Comparison, Side, TableDiff, metrics
from traceanalyzer.diff.captures import CAPTURE
from traceanalyzer.diff.joins import SAME
from traceanalyzer.meaning.columns import ABSENT, Column, Scale, Unit, digits, is_known, scale, signed, text
from traceanalyzer.meaning.vocabulary import (
    COMM,
    COMM_PARTS,
    IDLE,
    IDLE_CAUSES,
    IDLE_PARTS,
    PARTS,
    UNMATCHED,
    WAIT,
    Part,
)
from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.rows import Box, Row
from traceanalyzer.report.table_view import Cell, Heading, column_view
from traceanalyzer.report.words import POINTS, change_text, label
from traceanalyzer.report.writers.tables import write_frame
from traceanalyzer.snapshots.comparison import (
    CATEGORY,
    PEAK,
    MemoryChange,
    change_sentences,
    joined_by_change,
)
from traceanalyzer.snapshots.comparison import (
    COLUMNS as MEMORY_COLUMNS,
)

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

_SPLIT: Mapping[str, str] = {"transfer_ns": "transfer", "wait_ns": "wait"}
"""Sums that the time of a communication call is made of, and their looks."""

_BOTH = "both"

_LOOKS = {"compute": "compute", "comm": _BOTH, "communication": _BOTH, "copy": "copy"}
"""Looks of rows by kind or category: what communicates is transfer and wait together."""


@dataclass(frozen=True, slots=True)
class JoinedRow:
    """One row, and its bar: boxes around the middle of the bar's place, growth to the right."""

    status: str
    cells: tuple[Cell, ...]
    bar: tuple[Box, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinedView:
    """A joined table for a page; `basis` says what its figures are, `file` is its name in `tables/`."""

    title: str
    columns: tuple[Heading, ...]
    rows: tuple[JoinedRow, ...]
    total: int
    counts: Mapping[str, int]
    file: str
    basis: str = ""

    @property
    def heads(self) -> list[str]:
        """Each column with its unit."""
        return [f"{column.label} {column.unit}".strip() for column in self.columns]

    @property
    def changed(self) -> list[JoinedRow]:
        """The rows in which the runs differ."""
        return [row for row in self.rows if row.status != SAME]


def joined_view(table: TableDiff, run: str = "", most: int | None = None) -> JoinedView:
    """The table's rows, largest difference first; the first `most` of them.

    Bars are on one scale, what is more to the right of 50%, what is less to the left; the longest takes half of the
    place.
    """
    frame = table.frame.head(most) if most else table.frame
    is_split = all(f"change_{name}" in frame and frame[f"change_{name}"].notna().all() for name in _SPLIT)
    columns = [*_key_columns(frame, table.keys), *_number_columns(frame, table.time, is_split)]
    bars = [_pieces(row, table.time, is_split) for row in frame.to_dict("records")]
    widest = max((sum(max(sign * size, 0) for _, size in row) for row in bars for sign in (1, -1)), default=0) or 1
    boxes = []
    for row in bars:
        ends, own = {True: 50.0, False: 50.0}, []
        for look, size in row:
            start = ends[size > 0]
            ends[size > 0] += 50 * size / widest
            own.append(Box(min(start, ends[size > 0]), abs(ends[size > 0] - start), look, ""))
        boxes.append(tuple(own))
    cells = zip(*(values for _, values in columns), strict=True)
    rows = tuple(map(JoinedRow, frame["status"].astype("str"), cells, boxes))
    basis = "mean over ranks" if table.is_of_ranks else "of the whole run"
    file = f"{table.analysis}__{plain_name(run)}"
    heads = tuple(head for head, _ in columns)
    return JoinedView(table.title, heads, rows, len(table.frame), table.counts(), file, basis)


def plain_name(run: str) -> str:
    """A run's name as part of a file name."""
    return re.sub(r"[^\w.-]+", "-", run).strip("-") or "run"


def _pieces(row: Mapping[Any, Any], time: str | None, is_split: bool) -> list[tuple[str, float]]:
    """Look and change in ns of each part of a row's bar: transfer and wait apart where they are known."""
    named = row.get("kind", row.get("category"))
    look = _BOTH if "collective" in row else _LOOKS.get(str(named), "compute" if "category" in row else "change")
    if time == "bytes":
        look = "more" if row["change_bytes"] > 0 else "less"
    parts = {name: own for name, own in _SPLIT.items() if is_split} or ({time: look} if time else {})
    found = [(own, row.get(f"change_{name}")) for name, own in parts.items()]
    return [(own, float(change)) for own, change in found if is_known(change) and change]


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
    full = f"{one.full or one.text} → {two.full or two.text}" if one.full or two.full else ""
    return Cell(f"{one.text} → {two.text}", full)


def _number_columns(frame: pd.DataFrame, time: str | None, is_split: bool) -> list[tuple[Heading, list[Cell]]]:
    """The change of the time first, then both runs' values of it and of the other sums that both runs recorded."""
    made = []
    for name in (f"change_{time}", f"change_{time}_pct", "change_share_pct_points"):
        if name in frame:
            heading, cells = column_view(
                frame[name], Column.of(name), "share" if name.endswith("points") else "change", is_signed=True
            )
            made.append((replace(heading, unit=POINTS) if name.endswith("points") else heading, cells))
    left_out = {"exposed_wait_ns"} if is_split else _SPLIT  # transfer and wait add up to the time
    shown = [*([time] if time and not is_split else []), *(name for name in _SHOWN if name not in left_out)]
    sides = ("base", "other")
    in_both = [name for name in shown if all(frame.get(f"{side}_{name}", pd.Series()).notna().any() for side in sides)]
    return [*made, *(_both_runs(frame, name) for name in in_both)]


def _both_runs(frame: pd.DataFrame, name: str) -> tuple[Heading, list[Cell]]:
    """Both runs' values in one unit: `149 → 14`."""
    sides = [frame[f"base_{name}"], frame[f"other_{name}"]]
    head, cells = column_view(pd.concat(sides, ignore_index=True).rename(name), column_named(name))
    pairs = zip(cells[: len(frame)], cells[len(frame) :], strict=True)
    return head, [one if one.text == two.text else Cell(f"{one.text} → {two.text}") for one, two in pairs]


# The figures of a comparison side by side: a row each, a column for each run, as pages and Markdown show them.


_LABELS = {
    **{part.column: part.label for part in (*PARTS, *COMM_PARTS)},
    **{f"idle_{cause.column}": cause.part.label for cause in IDLE_CAUSES},
}


def per(comparison: Comparison) -> str:
    """`per step`, `per 1,000 tokens of a rank`, or `in the whole capture`."""
    scale = comparison.fairness.scale
    if scale.per_token:
        return f"per {scale.name}"
    return "in the whole capture" if scale == CAPTURE else "per step"


def each(comparison: Comparison) -> str:
    """The same behind a number: `/step`."""
    unit = per(comparison)
    return "/step" if unit == "per step" else f" {unit}"


@dataclass(frozen=True, slots=True)
class Value:
    """One run's value of a figure: text, spread, change (`+2.91%`, `+1.3 pp`), and the length of its bar in percent."""

    text: str
    spread: str
    change: str
    significance: str
    width: float


@dataclass(frozen=True, slots=True)
class FiguresRow:
    """One figure; its unit stands once for all runs."""

    metric: str
    label: str
    unit: str
    definition: str
    cells: tuple[Value, ...]


def figures(comparison: Comparison) -> list[FiguresRow]:
    """Every figure that two runs tell, and that is not 0 in all."""
    return [
        _row(comparison, str(name), own.set_index("run"))
        for name, own in comparison.metrics.groupby("metric", sort=False)
        if own["value"].notna().sum() > 1 and own["value"].any()
    ]


def is_of_single_captures(comparison: Comparison) -> bool:
    """Whether the noise of some change is unknown because a run was captured once."""
    return bool((comparison.metrics["significance"] == metrics.CANNOT_TELL).any())


def _row(comparison: Comparison, name: str, own: pd.DataFrame) -> FiguresRow:
    known = own["value"].dropna().abs().tolist()
    metric, scaled = metrics.BY_NAME[name], comparison.fairness.scale
    shown = scale(metric.unit, known)
    is_plain = not metric.per_step or (name == "step_ns" and per(comparison) == "per step")
    has_suffix = not is_plain and (scaled.per_token or not metric.of_one_step)
    suffix = (each(comparison) if shown.symbol else per(comparison)) if has_suffix else ""
    values = tuple(_value(own.loc[run], shown, max(known)) for run in comparison.runs)
    head = _LABELS.get(name) or label(name, Column.of(name))
    return FiguresRow(name, head, f"{shown.symbol}{suffix}".strip(), str(own["definition"].iloc[0]), values)


def _value(row: pd.Series, shown: Scale, largest: float) -> Value:
    if not is_known(row["value"]):
        return Value(ABSENT, "", "", "", 0.0)
    ends = [shown.text(float(row[end])) for end in ("rank_min", "rank_max") if is_known(row[end])]
    repeats = f"± {shown.text(float(row['std']))}, n = {row['repeats']}" if is_known(row["std"]) else ""
    spread = "; ".join(filter(None, (repeats, " to ".join(ends) if len({*ends}) > 1 else "")))
    width = 100 * abs(float(row["value"])) / largest
    return Value(shown.text(float(row["value"])), spread, change_text(row), _significance(row), width)


def _significance(row: pd.Series) -> str:
    says = row["significance"]
    if not is_known(says) or says in (metrics.EQUAL, metrics.CANNOT_TELL):
        return ""
    p = "" if not is_known(row["p_value"]) else f" (p = {digits(float(row['p_value']))})"
    return f"{says}{p}"


# What of each rank's peak of memory is more or less: by the traces' events, and by the snapshots beside them.


EVENTS, SNAPSHOTS = "traces", "snapshots"
"""Where a row comes from: bytes as the allocator rounds them, or as they were asked for."""

Memory = Sequence[tuple[str, str, MemoryChange]]
"""Runs, sources, and what changed."""


def memory_of(comparison: Comparison, snapshots: Mapping[str, MemoryChange]) -> Memory:
    """What each source tells of each other run; `snapshots` by run."""
    base, *others = comparison.sides
    made = []
    for side in others:
        tables = [table for one in (base, side) if (table := _of_events(one.first)) is not None]
        joined = joined_by_change(*tables) if len(tables) == len((base, side)) else pd.DataFrame()
        if len(joined):
            made.append((side.label, EVENTS, MemoryChange(joined, tuple(change_sentences(joined)))))
        if side.label in snapshots:
            made.append((side.label, SNAPSHOTS, snapshots[side.label]))
    return made


def _of_events(capture: Capture) -> pd.DataFrame | None:
    """The parts of each rank's peak by category; a peak is the sum of its categories."""
    table = capture.table("memory_categories")
    if table is None:
        return None
    parts = table[["rank", "category", "peak_bytes"]].set_axis(["rank", "name", "bytes"], axis=1).assign(of=CATEGORY)
    peaks = parts.groupby("rank", as_index=False)["bytes"].sum().assign(of=PEAK, name=PEAK)
    return pd.concat([peaks, parts[parts["bytes"] != 0]])


def memory_frame(memory: Memory) -> pd.DataFrame:
    """All rows, with the run and the source that they are of."""
    tables = [change.table.assign(run=run, source=source) for run, source, change in memory]
    columns = ["run", "source", *MEMORY_COLUMNS]
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)


def memory_sentences(memory: Memory) -> list[str]:
    """What changed, each with its run and source."""
    return [f"{run}, by its {source}: {sentence}" for run, source, change in memory for sentence in change.sentences]


def memory_views(memory: Memory) -> list[dict[str, Any]]:
    """For each run and source its sentences, and rows with bars: of the ranks whose peaks changed most the first."""
    return [
        {"run": run, "source": source, "sentences": change.sentences, "view": _memory_view(change, run, source)}
        for run, source, change in memory
    ]


def _memory_view(change: MemoryChange, run: str, source: str) -> JoinedView:
    table = change.table
    peaks = table[table["of"] == PEAK]
    ranks = peaks.loc[peaks["change_bytes"].abs().sort_values(ascending=False, kind="stable").index, "rank"]
    own = table[table["rank"].isin(ranks[: LAYOUT.named])]  # an absent rank is in them as others are
    own = own[own.groupby(["rank", "of"], dropna=False).cumcount() < LAYOUT.memory_changes].reset_index(drop=True)
    named = own.assign(of=own["of"].replace("site", "line"), item=own["name"].mask(own["of"] == PEAK, ""), status="")
    joined = TableDiff(f"memory__{source}", "Peak of memory", ("rank", "of", "item"), "bytes", named)
    return replace(joined_view(joined, run), total=len(table), counts={})


def write_memory(memory: Memory, folder: Path) -> list[Path]:
    """`memory.csv`, where there is anything to write."""
    if not memory:
        return []
    write_frame(memory_frame(memory), folder / "memory.csv")
    return [folder / "memory.csv"]


_DIVIDED = {COMM: COMM_PARTS, IDLE: IDLE_PARTS}

_EVERY = tuple(one for part in PARTS for one in (*_DIVIDED.get(part, ()), part))
"""In the order in which they are shown."""

COLUMNS = {part.column: part for part in _EVERY}


def of_ranks(comparison: Comparison, side: Side) -> pd.DataFrame | None:
    """Ranks × columns of parts that add up to a rank's step, in ns, mean over its captures; `None` if one is unknown.

    Communication and idle time are divided where they are in each capture.
    """
    tables = []
    for capture in side.captures:
        table = capture.table("time_parts")
        if table is None:
            return None
        tables.append(table.set_index("rank")[[*COLUMNS]].astype("float64") / comparison.fairness.scale.work(capture))
    every = pd.concat(tables)
    # Where no call is matched with other ranks', nothing of communication is known to be transfer or wait.
    is_unmatched = 0 < every[COMM.column].sum() == every[UNMATCHED.column].sum()
    for whole, parts in _DIVIDED.items():
        columns = [part.column for part in parts]
        is_whole = every[columns].isna().any(axis=None) or (whole is COMM and is_unmatched)
        every = every.drop(columns=columns if is_whole else whole.column)
    return None if every.isna().any(axis=None) else every.groupby(level="rank").mean()


# What a run's step has more and less of than the base's: of one rank, or of the mean over ranks.


@dataclass(frozen=True, slots=True)
class StepChange:
    """The parts of the base's and of a run's step, in ns by their columns; they add up to it.

    Attributes:
        basis: what they are of, for people: the rank for which others wait, whose waits are only its shadow; where
            there is none, the mean over ranks.
        base: of the base.
        other: of the run.
    """

    basis: str
    base: pd.Series
    other: pd.Series

    @property
    def by_part(self) -> pd.Series:
        """Other − base."""
        return self.other - self.base


def step_change(comparison: Comparison, run: str) -> StepChange | None:
    """What a run's step has more and less of; `None` where a part of a run is unknown."""
    tables = [of_ranks(comparison, side) for side in (comparison.base, comparison.side(run))]
    known = _divided_alike([table for table in tables if table is not None])
    if len(known) < len(tables):
        return None
    pair = _awaited_pair(*known)
    if pair is None:
        basis, base, other = "mean over ranks", *(table.mean() for table in known)
    else:
        base, other = (table.loc[rank] for table, rank in zip(known, pair, strict=True))
        basis = f"rank {' → rank '.join(map(str, dict.fromkeys(pair)))}, for which others wait"
    has_any = (base != 0) | (other != 0)
    return StepChange(basis, base[has_any], other[has_any])


def _divided_alike(tables: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """The tables with the same parts: what is whole in one is so in all."""
    for whole, parts in _DIVIDED.items():
        columns = [part.column for part in parts]
        if any(whole.column in table for table in tables):
            divided = [table.reindex(columns=columns).sum(axis=1) for table in tables]
            tables = [
                table.drop(columns=columns, errors="ignore").assign(**{whole.column: table.get(whole.column, own)})
                for table, own in zip(tables, divided, strict=True)
            ]
    return [table[[name for name in COLUMNS if name in table]] for table in tables]


def _awaited_pair(base: pd.DataFrame, other: pd.DataFrame) -> tuple[int, int] | None:
    """The rank for which others wait in each run; where there is none in one, the other's."""
    ranks = [_awaited(table) for table in (base, other)]
    known = [rank for rank in ranks if rank is not None]
    if not known:
        return None
    first, second = (known[0] if rank is None else rank for rank in ranks)
    return (first, second) if first in base.index and second in other.index else None


def _awaited(parts: pd.DataFrame) -> int | None:
    """`None` where waits are unknown, or differ by less than is worth a word."""
    if WAIT.column not in parts or len(parts) < 2:
        return None
    waits, window = parts[WAIT.column], parts.sum(axis=1).max()
    return int(waits.idxmin()) if waits.max() - waits.min() > PERCENT / 100 * window else None


def waterfall(comparison: Comparison, change: StepChange, run: str) -> list[Row]:
    """The base's step, what each part adds or takes away, and the run's step."""
    ends = [float(change.base.sum())]
    for more in change.by_part:
        ends.append(ends[-1] + more)
    percent = 100 / (max(ends) or 1.0)
    made = [_total(comparison.base.label, ends[0], percent)]
    for (column, more), start, end in zip(change.by_part.items(), ends, ends[1:], strict=False):
        part = COLUMNS[str(column)]
        box = Box(percent * min(start, end), percent * abs(end - start), part.kind, "")
        detail = f"{text(change.base[column], Unit.NS)} → {text(change.other[column], Unit.NS)}"
        made.append(Row(part.label, (box,), signed(more, Unit.NS), detail))
    return [*made, _total(run, ends[-1], percent)]


def _total(run: str, length_ns: float, percent: float) -> Row:
    return Row(run, (Box(0.0, percent * length_ns, "total", ""),), text(length_ns, Unit.NS))


# All runs side by side: a bar for each rank, split into parts that add up.


@dataclass(frozen=True, slots=True)
class Card:
    """One run: its step time, the change against the base, and its bars; none where its parts are not known."""

    run: str
    step: str
    change: str
    bars: tuple[Row, ...]


def cards(comparison: Comparison) -> tuple[list[Card], tuple[Part, ...]]:
    """A card for each run, and the parts that any has; none where fewer than two runs tell the parts of their steps."""
    found = {side.label: of_ranks(comparison, side) for side in comparison.sides}
    known = [table for table in found.values() if table is not None]
    if len(known) < 2:
        return [], ()
    longest = max(float(table.sum(axis=1).max()) for table in known) or 1.0
    parts = tuple(part for part in _EVERY if any(part.column in table and table[part.column].any() for table in known))
    made = [
        Card(run, *_step(comparison, run), () if table is None else tuple(_bars(table, parts, longest)))
        for run, table in found.items()
    ]
    return made, parts


def _bars(table: pd.DataFrame, parts: Sequence[Part], longest: float) -> list[Row]:
    """A bar for each rank; of many ranks one of their mean."""
    rows = {f"rank {rank}": row for rank, row in table.iterrows()}
    if len(table) > LAYOUT.side_by_side_ranks:
        rows = {f"mean of {len(table)} ranks": table.mean()}
    made = []
    for name, row in rows.items():
        at, boxes = 0.0, list[Box]()
        for part in parts:
            if length := float(row.get(part.column, 0.0)):
                width = 100 * length / longest
                boxes.append(Box(at, width, part.kind, f"{part.label} {text(length, Unit.NS)}"))
                at += width
        made.append(Row(name, tuple(boxes), text(float(row.sum()), Unit.NS)))
    return made


def _step(comparison: Comparison, run: str) -> tuple[str, str]:
    """The run's step time and its change against the base's."""
    row = metrics.row(comparison.metrics, "step_ns", run)
    if row is None or pd.isna(row["value"]):
        return "", ""
    return text(float(row["value"]), Unit.NS), "the base" if run == comparison.base.label else change_text(row)
