"""Who sends how much to whom in all-to-alls, as a square of cells; and which rank gets most, by layer and step."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.experts.split_sizes import DISPATCH
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import text

if TYPE_CHECKING:
    from traceanalyzer.analyses.frames import Row
    from traceanalyzer.analyses.names import DispatchLoadsColumn

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
    receivers = results["exchange_receivers"].to_frame()
    told = receivers[receivers["direction"].isin(frame["direction"].unique())]
    totals = told.groupby(["group_label", "direction"])["size_bytes"].sum()
    if totals.empty:
        return None  # of a group without a name nobody is known to receive
    label, direction = totals.idxmax()
    to = told[(told["group_label"] == label) & (told["direction"] == direction)].sort_values("rank")
    own = frame.merge(to[["group", "group_ranks", "direction"]].drop_duplicates())
    ranks = tuple(to["rank"].tolist())
    if len(ranks) > MOST_RANKS:
        return None
    rows = tuple(_sender(int(rank), part, ranks, int(own["size_bytes"].max())) for rank, part in own.groupby("rank"))
    said = "; ".join(
        f"rank {rank} receives {text(total, Unit.BYTES)}, {share:.2f} × the mean"
        for rank, total, share in zip(ranks, to["size_bytes"], to["of_mean"], strict=True)
    )
    return Sends(str(label), str(direction), int(own["calls"].max()), len(totals) - 1, ranks, f"R{said[1:]}.", rows)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one dispatch: darkness (0 to 1), the rank that receives most and how many times the mean, words."""

    opacity: float
    hot: str
    label: str


@dataclass(frozen=True, slots=True)
class Loads:
    """Of the group whose dispatches bring most, the load of each layer (row) in each step (column).

    Attributes:
        label: of the group.
        steps: numbers of the steps drawn, the first of them.
        left_out: further steps.
        rows: of each layer its place among the step's all-to-alls, and a load a step (`None` where it has none).
    """

    label: str
    steps: tuple[int, ...]
    left_out: int
    rows: tuple[tuple[int, tuple[Load | None, ...]], ...]


MOST_STEPS, MOST_LAYERS = 16, 64
"""Of a picture."""


def loads(results: Results) -> Loads | None:
    """Which rank gets how much in each dispatch; `None` without dispatches in steps."""
    frame = results["dispatch_loads"].to_frame()
    if frame.empty:
        return None
    label = frame.groupby("group_label")["load_bytes"].sum().idxmax()
    held = frame[frame["group_label"] == label]
    every = sorted(held["step"].unique().tolist())
    steps = every[:MOST_STEPS]
    ranks = results["exchanges"].to_frame().merge(held[["group", "group_ranks"]].drop_duplicates())
    each = dict(list(ranks[ranks["direction"] == DISPATCH].groupby(["place", "step"])))
    cells = {(row["place"], row["step"]): _load(row, each[row["place"], row["step"]])
             for row in held.to_dict("records") if row["step"] in steps}  # fmt: skip
    places = sorted({place for place, _ in cells})[:MOST_LAYERS]
    rows = tuple((place, tuple(cells.get((place, step)) for step in steps)) for place in places)
    return Loads(str(label), tuple(steps), len(every) - len(steps), rows)


def _load(row: "Row[DispatchLoadsColumn]", own: pd.DataFrame) -> Load:
    """Darkest at twice the mean."""
    share, hot = row["load_max_over_mean"], row["hot_rank"]
    each = "; ".join(
        f"rank {rank} {text(size, Unit.BYTES)}" for rank, size in zip(own["rank"], own["load_bytes"], strict=True)
    )
    words = f"step {row['step']}, all-to-all {row['place']}: rank {hot} receives {share:.2f} × the mean ({each})"
    return Load(round(min(max(share - 1, 0), 1), 3), f"{hot}: {share:.2f}", words)


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
