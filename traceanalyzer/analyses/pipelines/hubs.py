"""Messages around one rank: a server of parameters, a coordinator, a prefiller of several decoders; no stages."""

import pandas as pd

from traceanalyzer.model.tables import only, rows_where

LEAST_SPOKES = 3
"""The middle of three stages has two neighbours that exchange with nobody else; no stage has three."""


def is_of_hub(pairs: pd.DataFrame) -> pd.Series:
    """Mask of the rows of `pairs` (ranks `one` and `other`) between a hub and one that exchanges with nobody else.

    A hub is a rank with which at least three such ranks exchange messages.
    """
    ends = only(pairs, ["one", "other"])
    if ends.empty:
        return pd.Series(data=False, index=ends.index)
    both = pd.concat([ends, ends.rename(columns={"one": "other", "other": "one"})]).drop_duplicates()
    peers = both.groupby("one")["other"].nunique()
    spokes = rows_where(both, both["one"].map(peers) == 1)
    count = spokes.groupby("other")["one"].nunique()
    hubs = count.index[count >= LEAST_SPOKES]
    of_one, of_other = (
        ends[end].isin(hubs) & (ends[far].map(peers) == 1) for end, far in (("one", "other"), ("other", "one"))
    )
    return of_one | of_other
