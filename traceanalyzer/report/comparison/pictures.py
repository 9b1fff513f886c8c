"""Pictures of a comparison."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from traceanalyzer.analyses.overview import divided
from traceanalyzer.diff import Comparison, Side, metrics
from traceanalyzer.diff.captures import Capture
from traceanalyzer.meaning import columns
from traceanalyzer.meaning.columns import Unit, is_known, per_cent, text
from traceanalyzer.meaning.vocabulary import COMM, COMM_PARTS, GRAPH, IDLE, IDLE_PARTS, PARTS, Part

# Where each run's step goes, all runs side by side on one scale: a bar for each rank, split into parts that add up.


MOST_RANKS = 8
"""Up to so many ranks each have a bar; of more there is the mean over ranks alone."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a bar: where it begins and how wide it is in per cent of the longest bar of all runs, and its words."""

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
    if len(table) <= MOST_RANKS:
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
        said = f"{'+' if change > 0 else ''}{per_cent(float(change))} %" if change is not None else ""
    return ("" if step is None else text(float(step), Unit.NS)), said


# One step of each rank of every run, one below another, and which call of one run is which of the next.


UNITS = 100_000
"""Width of a picture in its own units: the longest step of any rank."""

MOST_LINKS = 300
"""Communication calls of one rank that are tied to the next run's: those that move most."""

NEAREST = 2_500
"""How close two ties of work may lie, in the picture's units."""

_MOST_TRIED = 400

_MOST_OF_NAME = 90

_REDUCTIONS = ("all_reduce", "reduce_scatter")

_DRAWN = (
    ("compute", "compute", 0), ("comm", "transfer", 1), ("wait", "wait", 1), ("copy", "copy", 2),
    (GRAPH.key, "unknown", 0),
)  # fmt: skip
"""Of the stretches of a step: kind, look, and row from the top."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is drawn of one kind: its look, its row, and an SVG path."""

    look: str
    row: int
    path: str


@dataclass(frozen=True, slots=True)
class Link:
    """One call, or operation, of a run and of the next one: where each ends, in the picture's units, and in words."""

    base: int
    other: int
    words: str
    kind: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A rank's step in one run; `links` lead from the run above it."""

    run: str
    rank: int
    step: int | None
    window: str
    end: int
    shapes: tuple[Shape, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """All lanes, ranks together; `longest_ns` is what the whole width shows."""

    lanes: tuple[Lane, ...]
    longest_ns: int
    has_graphs: bool

    def is_tied(self, kind: str) -> bool:
        """Whether anything of a kind (`comm`, `compute`) of a run is tied to the next."""
        return any(link.kind == kind for lane in self.lanes for link in lane.links)


def of(comparison: Comparison) -> Steps | None:
    """The pictures; `None` where no run has its operations."""
    drawn = [side for side in comparison.sides if side.first.lanes is not None and len(side.first.lanes)]
    frames = [(side.label, side.first.lanes, side.first.step_calls) for side in drawn]
    known = [(label, lanes, calls) for label, lanes, calls in frames if lanes is not None]
    if not known:
        return None
    longest = max(int(lanes["window_ns"].max()) for _, lanes, _ in known)
    ranks = sorted({int(rank) for _, lanes, _ in known for rank in lanes["rank"].unique()})
    return Steps(
        tuple(lane for rank in ranks for lane in _of_rank(rank, known, UNITS / longest)),
        longest,
        any(bool((lanes["kind"] == GRAPH.key).any()) for _, lanes, _ in known),
    )


def _of_rank(rank: int, runs: list[tuple[str, pd.DataFrame, pd.DataFrame | None]], scale: float) -> Iterator[Lane]:
    above: pd.DataFrame | None = None
    for label, lanes, all_calls in runs:
        own = lanes[lanes["rank"] == rank]
        calls = None if all_calls is None else all_calls[all_calls["rank"] == rank]
        if own.empty:
            continue
        window, step = int(own["window_ns"].iloc[0]), own["step"].iloc[0]
        yield Lane(
            label,
            rank,
            None if pd.isna(step) else int(step),
            columns.text(window, Unit.NS),
            round(window * scale),
            tuple(
                Shape(look, row, _path(stretches, scale))
                for kind, look, row in _DRAWN
                if len(stretches := own[own["kind"] == kind])
            ),
            () if above is None or calls is None else _links(above, calls, scale),
        )
        above = calls


def _links(above: pd.DataFrame, calls: pd.DataFrame, scale: float) -> tuple[Link, ...]:
    """What is the same in both: communication calls by name and place, and the longest of the work that both do."""
    both = _matched(above, calls, "comm")
    moved = (both["end_ns_other"] - both["end_ns_base"]).abs()
    shown = both.loc[moved.sort_values(ascending=False, kind="stable").index[:MOST_LINKS]]
    return (
        *_reduced(above, calls, scale),
        *(_link(row, f"{row['place']} {row['name']}", "comm", scale) for row in shown.to_dict("records")),
        *(
            _link(row, f"{row['place']} {_shortened(row['name'])}", "compute", scale)
            for row in _anchors(_matched(above, calls, "compute"), scale)
        ),
    )


def _matched(above: pd.DataFrame, calls: pd.DataFrame, kind: str) -> pd.DataFrame:
    """What has the same name and place in both."""
    frames = [frame[frame["kind"] == kind] for frame in (above, calls)]
    counts = [frame["name"].value_counts() for frame in frames]
    base, other = (_with_place(frame, counts, with_ends=kind == "comm") for frame in frames)
    return base.merge(other, on=["name", "place"], suffixes=("_base", "_other"))


def _with_place(frame: pd.DataFrame, counts: list[pd.Series], *, with_ends: bool) -> pd.DataFrame:
    """Those that both have as often with their place among their name, else with `with_ends` the first and the last."""
    here, there = (frame["name"].map(each) for each in counts)
    alike = frame[here == there]
    numbered = alike.assign(place="no. " + (alike["ordinal"] + 1).astype("str"))
    if not with_ends:
        return numbered
    own = frame[here != there].sort_values("ordinal", kind="stable").groupby("name")
    return pd.concat([numbered, own.head(1).assign(place="first"), own.tail(1).assign(place="last")])


def _anchors(both: pd.DataFrame, scale: float) -> list[dict[Any, Any]]:
    """The longest work, no two closer than `NEAREST` in the upper picture; never two ties that cross."""
    chosen: list[dict[Any, Any]] = []
    for row in both.sort_values("length_ns_base", ascending=False, kind="stable").head(_MOST_TRIED).to_dict("records"):
        if all(_is_beside(row, other, NEAREST / scale) for other in chosen):
            chosen.append(row)
    return chosen


def _is_beside(row: dict[Any, Any], other: dict[Any, Any], nearest_ns: float) -> bool:
    base, there = (row[name] - other[name] for name in ("end_ns_base", "end_ns_other"))
    return abs(base) >= nearest_ns and base * there > 0


def _reduced(above: pd.DataFrame, calls: pd.DataFrame, scale: float) -> Iterator[Link]:
    """The first and last reduction of gradients where one run all-reduces and the other reduce-scatters them."""
    sides = [frame[frame["kind"].eq("comm") & frame["name"].isin(_REDUCTIONS)] for frame in (above, calls)]
    names = [set(side["name"]) for side in sides]
    if not all(len(own) == 1 for own in names) or names[0] == names[1]:
        return
    base, other = (side.sort_values("end_ns") for side in sides)
    for place, at in (("first", 0), ("last", -1)):
        row = {f"{name}_{key}": side.iloc[at][name] for key, side in (("base", base), ("other", other))
               for name in ("end_ns", "length_ns", "name")}  # fmt: skip
        yield _link(row, f"{place} reduction ({row['name_base']} → {row['name_other']})", "comm", scale)


def _link(row: dict[Any, Any], name: str, kind: str, scale: float) -> Link:
    return Link(
        round(row["end_ns_base"] * scale),
        round(row["end_ns_other"] * scale),
        f"{name}: ends at {_time(row['end_ns_base'])} → {_time(row['end_ns_other'])}, "
        f"takes {_time(row['length_ns_base'])} → {_time(row['length_ns_other'])}",
        kind,
    )


def _shortened(name: str) -> str:
    return name if len(name) <= _MOST_OF_NAME else f"{name[: _MOST_OF_NAME - 1]}…"


def _time(time_ns: int) -> str:
    return columns.text(time_ns, Unit.NS)


def _path(stretches: pd.DataFrame, scale: float) -> str:
    """The stretches as one SVG path, ten units high."""
    return "".join(
        f"M{start * scale:.0f} 0h{max(1.0, (end - start) * scale):.0f}v10H{start * scale:.0f}z"
        for start, end in zip(stretches["start_ns"], stretches["end_ns"], strict=True)
    )
