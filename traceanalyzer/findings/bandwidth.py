"""Large collectives that are slower than the links: which, and what is seen of why."""

import pandas as pd

from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.collectives import SIZE_CLASSES, Collectives

LOW_PEAK_PCT = 30.0
"""Of the links' peak. Healthy captures of two GPUs, with compute beside the communication, reach 39 to 55 %."""

FEW_CHANNELS = 4
"""NCCL gives a large collective a block of threads for each channel, 16 and more of them between GPUs with NVLink."""

_LARGE = SIZE_CLASSES[3:5]


def slow_classes(collectives: Collectives) -> pd.DataFrame:
    """Rows of collectives of over 16 MiB whose transfer is below 30 % of what the links carry."""
    frame = collectives.to_frame()
    return frame[frame["size_class"].isin(_LARGE) & (frame["peak_pct"] < LOW_PEAK_PCT).fillna(value=False)]


def slowness_of(collective: object) -> str:
    """How findings about it call it."""
    return f"bandwidth of {collective}"


def few_channels(calls: Calls, collective: object, group: object) -> int | None:
    """The most blocks of any kernel of a group's collective, where even they are few; `None` where not known."""
    table = calls.table
    grids = table.loc[(table["collective"] == collective) & (table["group"] == group), "grid"].dropna().unique()
    blocks = [int(grid.partition("x")[0]) for grid in map(str, grids) if grid.partition("x")[0].isdigit()]
    return max(blocks) if blocks and max(blocks) <= FEW_CHANNELS else None
