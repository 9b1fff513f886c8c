"""Where each run's step goes: a bar for each rank on one scale, and what each part adds to the base's step."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.diff import Comparison, Side, metrics
from traceanalyzer.meaning.columns import Unit, signed, text
from traceanalyzer.meaning.vocabulary import COMM, COMM_PARTS, IDLE, IDLE_PARTS, PARTS, UNMATCHED, WAIT, Part
from traceanalyzer.report.layout import LAYOUT
from traceanalyzer.report.page.rows import Box, Row
from traceanalyzer.report.words import change_text

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
    for label, row in rows.items():
        at, boxes = 0.0, list[Box]()
        for part in parts:
            if length := float(row.get(part.column, 0.0)):
                width = 100 * length / longest
                boxes.append(Box(at, width, part.kind, f"{part.label} {text(length, Unit.NS)}"))
                at += width
        made.append(Row(label, tuple(boxes), text(float(row.sum()), Unit.NS)))
    return made


def _step(comparison: Comparison, run: str) -> tuple[str, str]:
    """The run's step time and its change against the base's."""
    row = metrics.row(comparison.metrics, "step_ns", run)
    if row is None or pd.isna(row["value"]):
        return "", ""
    return text(float(row["value"]), Unit.NS), "the base" if run == comparison.base.label else change_text(row)
