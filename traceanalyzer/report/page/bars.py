"""One bar for each rank: a mean step, or the capture, split into parts that add up."""

from dataclasses import dataclass

from traceanalyzer.analyses.overview.unlike_ranks import UnlikeRanks
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import is_known, text
from traceanalyzer.meaning.vocabulary import Part
from traceanalyzer.report.page.heat import shown
from traceanalyzer.report.words.parts import Split


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one rank's bar.

    Attributes:
        part: what it is.
        ns: its time in a mean step, or the capture.
        at: where it begins, in per cent of the longest bar.
        width: likewise.
        length: the same in words.
        share: of the rank's window, in words.
    """

    part: Part
    ns: float
    at: float
    width: float
    length: str
    share: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One rank.

    Attributes:
        rank: which.
        window_ns: the length of a mean step, or of the capture.
        length: the same in words.
        pieces: the parts that it has.
        needs: what its host and its GPU need for a step by themselves, in words; none where it is not known.
    """

    rank: int
    window_ns: float
    length: str
    pieces: tuple[Piece, ...]
    needs: tuple[str, ...]


def bars(split: Split, unlike_ranks: UnlikeRanks) -> list[Bar]:
    """The ranks of which bars are drawn."""
    longest = split.table["window_ns"].max()
    made = []
    for row in shown(split, unlike_ranks).to_dict("records"):
        at: float = 0
        pieces = []
        for part in split.parts:
            ns = row[part.column]
            if ns:
                width = 100 * ns / longest
                pieces.append(Piece(part, ns, at, width, text(ns, Unit.NS), text(row[part.share], Unit.PCT)))
                at += width
        needs = {"host": row["host_needs_ns"], "GPU": row["gpu_needs_ns"]}
        said = tuple(f"{who} {text(ns, Unit.NS)}" for who, ns in needs.items() if is_known(ns))
        made.append(Bar(row["rank"], row["window_ns"], text(row["window_ns"], Unit.NS), tuple(pieces), said))
    return made
