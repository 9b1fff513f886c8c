"""Which ranks do the same in a job whose ranks have roles: trainers, and those that generate what these train on."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.replay.replay import Replay

EVERYBODY = "all"


def with_roles(needs: pd.DataFrame, replay: Replay) -> pd.DataFrame:
    """Rows of `StepNeeds` in which `peers` are those of a rank's role, where ranks have such.

    Ranks of one role run the same kernels (`Peers.alike`), directly or by way of others; what one role takes is no
    measure of another, nor is a collective that one role alone runs. Where no other rank has a rank's role, nobody's
    role is told apart.
    """
    if replay.engine is None or (needs["peers"] != EVERYBODY).any():
        return needs
    ranks = np.sort(needs["rank"].unique())
    place = replay.engine.peers.place
    if any(rank not in place for rank in ranks.tolist()):
        return needs
    columns = [place[rank] for rank in ranks.tolist()]
    lowest = _joined(replay.engine.peers.alike[np.ix_(columns, columns)])
    names, counts = np.unique(lowest, return_counts=True)
    if len(names) < 2 or counts.min() < 2:
        return needs
    of_rank = {int(rank): f"role of rank {ranks[first]}" for rank, first in zip(ranks, lowest, strict=True)}
    needs = needs.assign(peers=needs["rank"].map(of_rank))
    of_role = needs.groupby(["peers", "step"], dropna=False)["slower_transfer_ns"].transform("min")
    return needs.assign(slower_transfer_ns=needs["slower_transfer_ns"] - of_role)


def _joined(alike: np.ndarray) -> np.ndarray:
    """Of each row the lowest one that it is joined with, directly or by way of others."""
    lowest, before = np.arange(len(alike)), None
    joined = alike | alike.T | np.eye(len(alike), dtype=bool)
    while before is None or (lowest != before).any():
        before = lowest
        lowest = np.where(joined, lowest, len(alike)).min(axis=1)
    return lowest
