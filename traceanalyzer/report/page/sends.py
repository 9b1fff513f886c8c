"""Who sends how much to whom in all-to-alls, as a square of cells."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.communication.groups import labels
from traceanalyzer.analyses.experts.split_sizes import DISPATCH
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import text

MOST_RANKS = 64
"""Of a picture: it has a cell for every two ranks."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one rank sends to another: its column, darkness (0 to 1), words, and its size in them."""

    column: int
    opacity: float
    label: str
    size: str


@dataclass(frozen=True, slots=True)
class Sender:
    """One row of the square."""

    rank: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Sends:
    """The all-to-alls of one group, in one direction.

    Attributes:
        label: of the group.
        direction: dispatch or exchange.
        calls: all-to-alls of a rank.
        others: groups that are not drawn.
        receivers: their ranks, in order of column.
        received: a sentence on what each receives, with its share of the mean.
        rows: by sender.
    """

    label: str
    direction: str
    calls: int
    others: int
    receivers: tuple[int, ...]
    received: str
    rows: tuple[Sender, ...]


def sends(results: Results) -> Sends | None:
    """The group that sends most, dispatches where there are any; `None` without split sizes or of too many ranks."""
    frame = results["exchange_sends"].to_frame()
    if frame.empty:
        return None
    frame = frame[frame["direction"] == DISPATCH] if (frame["direction"] == DISPATCH).any() else frame
    told_groups = frame.assign(label=labels(results["groups"], frame))
    totals = told_groups.groupby(["label", "direction"])["size_bytes"].sum()
    label, direction = totals.idxmax()
    own = told_groups[(told_groups["label"] == label) & (told_groups["direction"] == direction)]
    ranks = tuple(sorted(int(rank) for rank in own["peer"].unique()))
    if len(ranks) > MOST_RANKS:
        return None
    received = own.groupby("peer")["size_bytes"].sum().reindex(ranks, fill_value=0)
    rows = tuple(_sender(int(rank), part, ranks, int(own["size_bytes"].max())) for rank, part in own.groupby("rank"))
    of_mean = received / max(received.mean(), 1)
    told = "; ".join(
        f"rank {rank} receives {text(total, Unit.BYTES)}, {share:.2f} × the mean"
        for rank, total, share in zip(ranks, received, of_mean, strict=True)
    )
    return Sends(str(label), str(direction), int(own["calls"].max()), len(totals) - 1, ranks, f"R{told[1:]}.", rows)


def _sender(rank: int, own: pd.DataFrame, receivers: tuple[int, ...], most: int) -> Sender:
    cells = tuple(
        Cell(
            receivers.index(int(peer)),
            round(int(size) / max(most, 1), 3),
            f"rank {rank} {'keeps' if peer == rank else f'sends rank {peer}'} {text(size, Unit.BYTES)}",
            text(size, Unit.BYTES),
        )
        for peer, size in own[["peer", "size_bytes"]].itertuples(index=False)
    )
    return Sender(rank, cells)
