"""What evening out the experts' load gains of a step: by the replay, else what it saves at most."""

from collections.abc import Mapping

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.experts.split_sizes import DISPATCH

_GROUP = ["group", "group_ranks"]

UNEVEN = 1.1
"""Largest load over mean."""


class Evened(Struct, frozen=True):
    """What an even load of one group gains of a step.

    Attributes:
        hot_rank: that its uneven dispatches load most.
        gain_ns: of the replay; without one the most that can be saved.
        error_ns: of the replay.
        is_bound: it is no more than a bound.
        is_replayed: it is the replay's.
    """

    hot_rank: int
    gain_ns: int
    error_ns: int | None = None
    is_bound: bool = True
    is_replayed: bool = False


def evened(expert_layers: pd.DataFrame, even_experts: pd.DataFrame) -> Mapping[tuple[str, str], Evened]:
    """Of each group with uneven dispatches what an even load gains."""
    if expert_layers.empty:
        return {}
    replayed = {(row["group"], row["group_ranks"]): row for row in even_experts.to_dict("records")}
    found = {}
    for key, own in expert_layers.groupby(_GROUP):
        uneven = uneven_dispatches(own)
        if len(uneven):
            hot = hot_rank(uneven)
            row = replayed.get(key)
            found[key] = (
                Evened(hot, saved_ns(own))
                if row is None or pd.isna(row["gain_ns"])
                else Evened(hot, int(row["gain_ns"]), int(row["error_ns"]), bool(row["is_bound"]), is_replayed=True)
            )
    return found


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
