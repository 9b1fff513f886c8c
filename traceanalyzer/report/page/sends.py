"""Who sends how much to whom in all-to-alls, as a square of cells; and which rank gets most, by layer and step."""

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
    frame = results["exchanges"].to_frame()
    frame = frame[(frame["direction"] == DISPATCH) & frame["place"].notna()] if len(frame) else frame
    if frame.empty:
        return None
    told = frame.assign(label=labels(results["groups"], frame))
    label = told.groupby("label")["load_bytes"].sum().idxmax()
    own = told[told["label"] == label]
    steps = sorted(int(step) for step in own["step"].unique())
    held = own[own["step"].isin(steps[:MOST_STEPS])]
    cells = {(int(place), int(step)): part for (place, step), part in held.groupby(["place", "step"])}
    places = sorted({place for place, _ in cells})[:MOST_LAYERS]
    rows = tuple((place, tuple(_load(place, cells.get((place, step)), step) for step in steps[:MOST_STEPS]))
                 for place in places)  # fmt: skip
    return Loads(str(label), tuple(steps[:MOST_STEPS]), max(len(steps) - MOST_STEPS, 0), rows)


def _load(place: int, own: pd.DataFrame | None, step: int) -> Load | None:
    """Darkest at twice the mean."""
    if own is None or not own["load_bytes"].sum():
        return None
    by_rank = own.groupby("rank")["load_bytes"].sum()
    share, hot = float(by_rank.max() / by_rank.mean()), int(by_rank.idxmax())
    each = "; ".join(f"rank {rank} {text(size, Unit.BYTES)}" for rank, size in by_rank.items())
    words = f"step {step}, all-to-all {place}: rank {hot} receives {share:.2f} × the mean ({each})"
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
