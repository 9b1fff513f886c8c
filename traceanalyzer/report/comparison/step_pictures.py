"""One step of each rank of every run, one below another, and which call of one run is which of the next."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.diff import Comparison
from traceanalyzer.meaning import quantities
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.vocabulary import GRAPH

UNITS = 100_000
"""Width of a picture in its own units: the longest step of any rank."""

MOST_LINKS = 300
"""Calls of one rank that are tied to the next run's: those that move most."""

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
    """One call of a run and of the next one: where each ends, in the picture's units, and in words."""

    base: int
    other: int
    words: str


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

    @property
    def is_tied(self) -> bool:
        """Whether any call of a run is one of the next."""
        return any(lane.links for lane in self.lanes)


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
            quantities.text(window, Unit.NS),
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
    """Calls of the same name and place in both."""
    counts = [frame["name"].value_counts() for frame in (above, calls)]
    base, other = (_with_place(frame, counts) for frame in (above, calls))
    both = base.merge(other, on=["name", "place"], suffixes=("_base", "_other"))
    moved = (both["end_ns_other"] - both["end_ns_base"]).abs()
    shown = both.loc[moved.sort_values(ascending=False, kind="stable").index[:MOST_LINKS]]
    return tuple(
        Link(
            round(row["end_ns_base"] * scale),
            round(row["end_ns_other"] * scale),
            f"{row['place']} {row['name']}: ends at {_time(row['end_ns_base'])} → {_time(row['end_ns_other'])}, "
            f"takes {_time(row['length_ns_base'])} → {_time(row['length_ns_other'])}",
        )
        for row in shown.to_dict("records")
    )


def _with_place(frame: pd.DataFrame, counts: list[pd.Series]) -> pd.DataFrame:
    """The calls with their place among those of their name; the first and the last where runs make unequally many."""
    here, there = (frame["name"].map(each) for each in counts)
    alike = frame[here == there]
    own = frame[here != there].sort_values("ordinal", kind="stable").groupby("name")
    return pd.concat(
        [
            alike.assign(place="no. " + (alike["ordinal"] + 1).astype("str")),
            own.head(1).assign(place="first"),
            own.tail(1).assign(place="last"),
        ]
    )


def _time(time_ns: int) -> str:
    return quantities.text(time_ns, Unit.NS)


def _path(stretches: pd.DataFrame, scale: float) -> str:
    """The stretches as one SVG path, ten units high."""
    return "".join(
        f"M{start * scale:.0f} 0h{max(1.0, (end - start) * scale):.0f}v10H{start * scale:.0f}z"
        for start, end in zip(stretches["start_ns"], stretches["end_ns"], strict=True)
    )
