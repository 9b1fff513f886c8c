"""What evening out the experts' load saves at most of a step, by the rank that has most of it."""

from collections.abc import Mapping

import pandas as pd

from traceanalyzer.analyses.experts.split_sizes import DISPATCH

UNEVEN = 1.1
"""Largest load over mean."""


def saved_by_evening(expert_layers: pd.DataFrame) -> Mapping[int, int]:
    """For each rank that is the hot one of a group's uneven dispatches: transfers and compute that the mean load saves.

    Tokens that leave it go to the others: less than what the rank computes beyond them.
    """
    if expert_layers.empty:
        return {}
    saved = {}
    for _, own in expert_layers.groupby(["group", "group_ranks"]):
        uneven = uneven_dispatches(own)
        if len(uneven):
            saved[hot_rank(uneven)] = saved_ns(own)
    return saved


def uneven_dispatches(own: pd.DataFrame) -> pd.DataFrame:
    """The group's dispatches that load a rank over a tenth more than the mean."""
    dispatches = own[own["direction"] == DISPATCH]
    return dispatches[(dispatches["load_max_over_mean"] >= UNEVEN).fillna(value=False)]


def hot_rank(uneven: pd.DataFrame) -> int:
    """The rank that most of these dispatches load most."""
    return int(uneven["hot_rank"].mode().iloc[0])


def saved_ns(own: pd.DataFrame) -> int:
    """Of transfers and of experts' compute together."""
    return int(own["saved_transfer_ns"].sum()) + int(own["saved_compute_ns"].fillna(0).sum())
