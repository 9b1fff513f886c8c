"""Where each run's step goes: a bar for each rank on one scale, and what each part adds to the base's step."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.diff import Comparison, Side, metrics
from traceanalyzer.meaning.columns import Unit, signed, text
from traceanalyzer.meaning.vocabulary import COMM, COMM_PARTS, IDLE, IDLE_PARTS, PARTS, Part
from traceanalyzer.report.comparison.step_parts import parts as waterfall_parts
from traceanalyzer.report.comparison.step_parts import rank_parts
from traceanalyzer.report.layout import LAYOUT
from traceanalyzer.report.page.rows import Box, Row

# All runs side by side: a bar for each rank, split into parts that add up.


@dataclass(frozen=True, slots=True)
class Card:
    """One run: its step time, the change against the base, and its bars; none where its parts are not known."""

    run: str
    step: str
    change: str
    bars: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Cards:
    """A card for each run, and the parts that any of them has."""

    cards: tuple[Card, ...]
    parts: tuple[Part, ...]


_DIVIDED = {COMM.column: COMM_PARTS, IDLE.column: IDLE_PARTS}

_ALL = tuple(one for part in PARTS for one in (*_DIVIDED.get(part.column, ()), part))


def cards(comparison: Comparison) -> Cards | None:
    """`None` where fewer than two runs tell the parts of their ranks' steps."""
    found = {side.label: _of_side(comparison, side) for side in comparison.sides}
    known = [table for table in found.values() if table is not None]
    if len(known) < 2:
        return None
    longest = max(float(table.sum(axis=1).max()) for table in known) or 1.0
    parts = tuple(part for part in _ALL if any(part.column in table and table[part.column].any() for table in known))
    made = tuple(
        Card(run, *_step(comparison, run), () if table is None else tuple(_bars(table, parts, longest)))
        for run, table in found.items()
    )
    return Cards(made, parts)


def _of_side(comparison: Comparison, side: Side) -> pd.DataFrame | None:
    """Ranks × parts of a step, in ns; one row for the mean of many ranks."""
    table = rank_parts(side.first)
    if table is None:
        return None
    table /= comparison.fairness.scale.divisor(side.first)
    if len(table) <= LAYOUT.side_by_side_ranks:
        return table.set_axis([f"rank {rank}" for rank in table.index])
    return table.mean().to_frame(f"mean of {len(table)} ranks").T


def _bars(table: pd.DataFrame, parts: Sequence[Part], longest: float) -> list[Row]:
    made = []
    for label, row in table.iterrows():
        at, boxes = 0.0, list[Box]()
        for part in parts:
            if length := float(row.get(part.column, 0.0)):
                width = 100 * length / longest
                boxes.append(Box(at, width, part.kind, f"{part.label} {text(length, Unit.NS)}"))
                at += width
        made.append(Row(str(label), tuple(boxes), text(float(row.sum()), Unit.NS)))
    return made


def _step(comparison: Comparison, run: str) -> tuple[str, str]:
    """The run's step time and its change against the base's."""
    row = metrics.row(comparison.metrics, "step_ns", run)
    if row is None or pd.isna(row["value"]):
        return "", ""
    change = "" if pd.isna(row["change_pct"]) else f"{signed(float(row['change_pct']))}%"
    return text(float(row["value"]), Unit.NS), "the base" if run == comparison.base.label else change


# From the base's step to another run's.


def waterfall(comparison: Comparison, run: str) -> list[Row]:
    """The base's step, what each part adds or takes away, and the run's step; none where parts are unknown."""
    parts = waterfall_parts(comparison, run)
    base = sum(part.base_ns for part in parts)
    ends = [base]
    for part in parts:
        ends.append(ends[-1] + part.change_ns)
    percent = 100 / (max(ends) or 1.0)
    made = [_total(comparison.base.label, base, percent)]
    for part, start, end in zip(parts, ends, ends[1:], strict=False):
        box = Box(percent * min(start, end), percent * abs(end - start), part.kind, "")
        detail = f"{text(part.base_ns, Unit.NS)} → {text(part.other_ns, Unit.NS)}"
        made.append(Row(part.label, (box,), signed(part.change_ns, Unit.NS), detail))
    return [*made, _total(run, ends[-1], percent)] if parts else []


def _total(run: str, length_ns: float, percent: float) -> Row:
    return Row(run, (Box(0.0, percent * length_ns, "total", ""),), text(length_ns, Unit.NS))
