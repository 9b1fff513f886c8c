"""Lengths of which the longest are cut until each group's sum is what is wanted."""

import numpy as np
import pandas as pd


def capped(ns: np.ndarray, key: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """No length of a group exceeds the level at which they sum to `wanted[key]`; unchanged where they sum to less.

    Rows of key -1 belong to no group.
    """
    rows = np.flatnonzero(key >= 0)
    order = rows[np.lexsort((ns[rows], key[rows]))]
    table = pd.DataFrame({"key": key[order], "ns": ns[order]})
    groups = table.groupby("key", sort=False)["ns"]
    below = groups.cumsum() - table["ns"]
    longer = groups.cumcount(ascending=False) + 1
    level = (wanted[table["key"]] - below) / longer
    # From the first length that is above its level on, all are cut to that level.
    first = level.where(level <= table["ns"]).groupby(table["key"]).transform("first")
    shorter = table["ns"].where(first.isna(), np.minimum(table["ns"], first.clip(lower=0)))
    cut = ns.copy()
    cut[order] = np.round(shorter).astype(np.int64)
    return cut
