"""Which collectives move data more slowly than links can, and the change that makes them as fast as in healthy jobs."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from traceanalyzer.analyses.communication.collectives import SIZE_CLASSES, Collectives, transfer_kinds
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.model.tables import rows_where

LOW_PEAK_PCT = 30.0
"""Of the links' peak. Healthy captures of two GPUs, with compute beside the communication, reach 39 to 55 %."""

HEALTHY_PEAK = 0.4
"""Part of the links' peak that healthy captures reach."""

SLOW_LINKS = "rate of links"
"""How findings about it call that collectives are slow: all of them are one finding."""

_LARGE = SIZE_CLASSES[3:5]


def healthy_rate(collectives: Collectives, collective: str, low_peak_pct: float) -> Change | None:
    """The change that makes a slow collective, or messages, as fast as in healthy jobs; `None` if they are not slow."""
    own = slow_groups(collectives, low_peak_pct)
    own = rows_where(own, own["transfers"] == collective)
    return healthy(own.iloc[-1].to_dict()) if len(own) else None


def slow_groups(collectives: Collectives, low_peak_pct: float) -> pd.DataFrame:
    """The best class of sizes of each group that is slow, with its kind of `transfers`; the slowest group first."""
    frame = collectives.to_frame()
    is_slow = frame["size_class"].isin(_LARGE) & (frame["peak_pct"] < low_peak_pct).fillna(value=False)
    slow: pd.DataFrame = rows_where(frame, is_slow)
    slow = slow.assign(transfers=transfer_kinds(slow["collective"]))
    return slow.sort_values("peak_pct").drop_duplicates(["group", "group_ranks", "transfers"], keep="last")


def healthy(fastest: Mapping[str, Any]) -> Change:
    """The change that makes the fastest of the slow groups reach what healthy captures do."""
    rate = HEALTHY_PEAK * float(fastest["link_peak_gbps"])
    return Change("collective", min(float(fastest["busbw_gbps"]) / rate, 1.0), name=str(fastest["transfers"]))
