"""Messages around one rank, or some: servers of parameters, a coordinator, a prefiller of decoders; no stages."""

import pandas as pd

from traceanalyzer.model.tables import only, rows_where

LEAST_SPOKES = 3
"""The middle of three stages has two neighbours that exchange with nobody else; no stage has three."""


def is_of_hub(pairs: pd.DataFrame) -> pd.Series:
    """Mask of the rows of `pairs` (ranks `one` and `other`) between a hub and one that exchanges with hubs alone.

    A hub is a rank with which at least three such ranks exchange messages: several are servers of the same ranks.
    """
    ends = only(pairs, ["one", "other"])
    if ends.empty:
        return pd.Series(data=False, index=ends.index)
    both = pd.concat([ends, ends.rename(columns={"one": "other", "other": "one"})]).drop_duplicates()
    count = both.groupby("one")["other"].nunique()
    may_be = both["one"].map(count) >= LEAST_SPOKES
    is_with_hubs = both["other"].map(count) >= LEAST_SPOKES
    spokes = rows_where(both, ~may_be & is_with_hubs.groupby(both["one"]).transform("all"))
    found = spokes.groupby("other")["one"].nunique()
    hubs, around = found.index[found >= LEAST_SPOKES], spokes["one"].unique()
    of_one, of_other = (
        ends[end].isin(hubs) & ends[far].isin(around) for end, far in (("one", "other"), ("other", "one"))
    )
    return of_one | of_other
