"""Ranks with a role of their own that are ahead of the others: what they take long for, nobody waits for."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.roles import are_alone
from traceanalyzer.model.tables import picked

_SEEN = 0.5
"""Of what the rank needs more in its late steps."""


def awaited(found: pd.DataFrame, late: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """The cells (`lateness.cells`) but for those of ranks that are ahead; `wait_ns` of `calls` is exposed.

    No other rank is held against one with a role of its own, so that its longest work seems late even where it is done
    long before anybody asks for it. It is late where others are seen to wait for it half as long as it needs more, in
    the same steps or later ones; of calls whose waits are not known, where it waits for less than that itself then.
    """
    alone = late["rank"][are_alone(late)].unique()
    if not found["rank"].isin(alone).any():
        return found
    needed = found.groupby("rank")["excess_ns"].sum().astype("float64")
    met = calls[calls["waits_for"].isin(alone) & (calls["waits_for"] != calls["rank"])]
    seen = met.groupby(["waits_for", "rank"])["wait_ns"].sum().groupby("waits_for").max().astype("float64")
    own = (
        _waits(late).reindex(pd.MultiIndex.from_frame(found[["rank", "step"]].drop_duplicates())).groupby("rank").sum()
    )
    least = _SEEN * needed
    is_ahead = needed.index.isin(alone) & (seen.reindex(needed.index, fill_value=0.0) < least)
    is_ahead &= own.reindex(needed.index, fill_value=0.0) >= least
    return picked(found, ~np.isin(found["rank"].to_numpy(), needed.index[is_ahead].to_numpy()))


def _waits(late: pd.DataFrame) -> pd.Series:
    """By rank and step what the rank waits, or may, in that one or in the next, whichever is more."""
    rows = late.sort_values(["rank", "step"]).set_index(["rank", "step"])
    now = (rows["exposed_wait_ns"] + rows["exposed_unmatched_ns"]).astype("float64")
    following = now.groupby("rank").shift(-1).fillna(0.0)
    return now.where(now >= following, following)
