"""One bar for each rank: a mean step, or the capture, split into parts that add up."""

from dataclasses import dataclass

from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import text
from traceanalyzer.meaning.vocabulary import Part
from traceanalyzer.report.page.heat import shown
from traceanalyzer.report.words.parts import Split


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one rank's bar.

    Attributes:
        part: what it is.
        ns: its time, summed over the steps.
        at: where it begins, in per cent of the longest bar.
        width: likewise.
        length: its time in a mean step, or the capture, in words.
        share: of the rank's window, in words.
    """

    part: Part
    ns: int
    at: float
    width: float
    length: str
    share: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One rank: its window summed over the steps, that of a mean step in words, and the parts that it has."""

    rank: int
    window_ns: int
    length: str
    pieces: tuple[Piece, ...]


def bars(split: Split) -> list[Bar]:
    """The ranks of which bars are drawn."""
    longest = split.table["window_ns"].max()
    made = []
    for row in shown(split).to_dict("records"):
        at: float = 0
        pieces = []
        for part in split.parts:
            ns = row[part.column]
            if ns:
                width = 100 * ns / longest
                share = text(100 * ns / row["window_ns"], Unit.PCT)
                pieces.append(Piece(part, ns, at, width, text(ns / split.per, Unit.NS), share))
                at += width
        made.append(Bar(row["rank"], row["window_ns"], text(row["window_ns"] / split.per, Unit.NS), tuple(pieces)))
    return made
