"""Which host each rank is on."""

from collections.abc import Mapping

import pandas as pd

BLOCK = 8
"""GPUs of a host, where the trace does not say which rank is where."""


def hosts_of(ranks: pd.DataFrame) -> Mapping[int, str]:
    """The host of each rank of `Ranks`; blocks of 8 neighbours where any is not known."""
    if ranks["host"].isna().any():
        return {int(rank): str(rank // BLOCK) for rank in ranks["rank"]}
    return dict(zip(ranks["rank"].astype(int), ranks["host"].astype(str), strict=True))
