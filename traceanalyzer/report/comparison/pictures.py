"""Where each run's step goes, all runs side by side on one scale: a bar for each rank, split into parts that add up."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses.overview import divided
from traceanalyzer.diff import Comparison, Side, metrics
from traceanalyzer.diff.captures import Capture
from traceanalyzer.meaning.columns import Unit, is_known, per_cent, text
from traceanalyzer.meaning.vocabulary import COMM, COMM_PARTS, IDLE, IDLE_PARTS, PARTS, Part
from traceanalyzer.report.layout import LAYOUT


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a bar: where it begins and how wide it is in percent of the longest bar of all runs, and its words."""

    part: Part
    at: float
    width: float
    words: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A rank, or the mean over ranks, of one run."""

    label: str
    length: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """One run: its step time, the change against the base, and its bars; none where its parts are not known."""

    run: str
    step: str
    change: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Cards:
    """A card for each run, and the parts that any of them has."""

    cards: tuple[Card, ...]
    parts: tuple[Part, ...]


def cards(comparison: Comparison) -> Cards | None:
    """`None` where fewer than two runs tell the parts of their ranks' steps."""
    found = {side.label: _of_side(comparison, side) for side in comparison.sides}
    known = [table for table in found.values() if table is not None]
    if len(known) < 2:
        return None
    longest = max(float(table.sum(axis=1).max()) for table in known) or 1.0
    parts = [part for part in _ALL if any(part.column in table and table[part.column].any() for table in known)]
    made = tuple(
        Card(run, *_step(comparison, run), () if table is None else _bars(table, parts, longest))
        for run, table in found.items()
    )
    return Cards(made, tuple(parts))


_OF_COMM = COMM_PARTS

_ALL = tuple(
    one for part in PARTS for one in (*({COMM.column: _OF_COMM, IDLE.column: IDLE_PARTS}.get(part.column, ())), part)
)


def _of_side(comparison: Comparison, side: Side) -> pd.DataFrame | None:
    """Ranks × parts of a step, in ns; one row `mean` for many ranks."""
    capture = side.first
    headline: pd.DataFrame | None = capture.table("headline")
    columns = [part.column for part in PARTS]
    if headline is None or headline[columns].isna().any(axis=None):
        return None
    table: pd.DataFrame = headline.set_index("rank")[columns]
    table = _divided(table, capture, "exposed_comm", COMM, _OF_COMM)
    table = _divided(table, capture, "idle", IDLE, IDLE_PARTS)
    table = table.astype("float64") / comparison.fairness.scale.divisor(capture)
    if len(table) <= LAYOUT.side_by_side_ranks:
        return table.set_axis([f"rank {rank}" for rank in table.index])
    return table.mean().to_frame(f"mean of {len(table)} ranks").T


def _divided(
    table: pd.DataFrame, capture: Capture, analysis: str, whole: Part, parts: tuple[Part, ...]
) -> pd.DataFrame:
    """The table with a part in its own parts, where these are of the same steps and add up to it."""
    found = capture.tables.get(analysis)
    columns = [part.column for part in parts]
    if found is None or not {"rank", "step", *columns} <= set(found):
        return table
    for rows in (found[found["step"].isna()], found[found["step"].isin(capture.steps)]):
        made = divided(table.reset_index(), rows, whole, parts, ["rank"]).set_index("rank")
        if made[columns].notna().all(axis=None):
            return made.drop(columns=whole.column)
    return table


def _bars(table: pd.DataFrame, parts: Sequence[Part], longest: float) -> tuple[Bar, ...]:
    made = []
    for label, row in table.iterrows():
        at, pieces = 0.0, []
        for part in parts:
            length = float(row.get(part.column, 0.0))
            if length:
                width = 100 * length / longest
                pieces.append(Piece(part, at, width, f"{part.label} {text(length, Unit.NS)}"))
                at += width
        made.append(Bar(str(label), text(float(row.sum()), Unit.NS), tuple(pieces)))
    return tuple(made)


def _step(comparison: Comparison, run: str) -> tuple[str, str]:
    step = metrics.value(comparison.metrics, "step_ns", run)
    rows = comparison.metrics[(comparison.metrics["metric"] == "step_ns") & (comparison.metrics["run"] == run)]
    change = next((value for value in rows["change_pct"].tolist() if is_known(value)), None)
    if run == comparison.base.label:
        said = "the base"
    else:
        said = f"{'+' if change > 0 else ''}{per_cent(float(change))}%" if change is not None else ""
    return ("" if step is None else text(float(step), Unit.NS)), said
