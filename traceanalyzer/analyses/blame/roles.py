"""Which ranks do the same in a job whose ranks have roles: trainers, and those that generate what these train on."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.operators.operator_tree import NO_LAUNCH, NO_OPERATOR
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.replay.peers import ALIKE
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import rows_where

EVERYBODY = "all"
_ROLE = "role of rank"


def with_roles(
    needs: pd.DataFrame, replay: Replay, ranks: Ranks, call_waits: CallWaits, operators: Operators
) -> pd.DataFrame:
    """Rows of `StepNeeds` in which `peers` are those of a rank's role, where ranks have such.

    Ranks of one role run the same kernels (`Peers.alike`), directly or by way of others; what one role takes is no
    measure of another. A rank whose kernels no other runs is of the role of those that run its operators and
    communicate as it does: it may compute the same otherwise. Where it does either otherwise, as one that evaluates
    for the others, feeds them or learns, its role is its own. Nobody's role is told apart on GPUs of several models,
    whose kernels have other names for the same work.
    """
    models = ranks.table["device_name"].dropna().unique()
    if replay.engine is None or (needs["peers"] != EVERYBODY).any() or len(models) > 1:
        return needs
    every = np.sort(needs["rank"].unique())
    place = replay.engine.peers.place
    if any(rank not in place for rank in every.tolist()):
        return needs
    columns = [place[rank] for rank in every.tolist()]
    alike = replay.engine.peers.alike[np.ix_(columns, columns)]
    is_alone = (alike | alike.T).sum(axis=1) < 2
    if is_alone.any():
        calls = _counts(call_waits.table.assign(count=1), "collective", every)
        known = rows_where(operators.table, ~operators.table["operator"].isin([NO_LAUNCH, NO_OPERATOR]))
        run = _counts(known.rename(columns={"gpu_ops": "count"}), "operator", every)
        otherwise = _alike(calls, np.maximum) & _alike(run, np.minimum)
        alike = alike | (is_alone[:, None] & otherwise)
    lowest = _joined(alike)
    if not lowest.any():
        return needs
    of_rank = {int(rank): f"{_ROLE} {every[first]}" for rank, first in zip(every, lowest, strict=True)}
    return needs.assign(peers=needs["rank"].map(of_rank))


def without_own_collectives(needs: pd.DataFrame, slower: pd.DataFrame) -> pd.DataFrame:
    """The rows less what moving data takes in collectives that one role alone runs: they are no slower than others'.

    `slower` are `SlowerCalls`, which hold these to be all too long, where ranks should do the same.
    """
    of_rank = needs.drop_duplicates("rank").set_index("rank")["peers"]
    roles = {frozenset(own) for own in of_rank.groupby(of_rank).groups.values()}
    if len(roles) < 2 or slower.empty:
        return needs
    is_by_design = (slower["usual_ns"] == 0) & slower["among"].map(lambda text: frozenset(numbers(text)) in roles)
    longer_ns = slower["longer_ns"].astype("float64")
    keys = [slower["rank"], slower["step"].fillna(NONE)]
    share = longer_ns.where(is_by_design, 0.0).groupby(keys).sum() / longer_ns.groupby(keys).sum()
    rows = pd.MultiIndex.from_arrays([needs["rank"], needs["step"].fillna(NONE)])
    left = 1.0 - share.reindex(rows).fillna(0.0).to_numpy()
    return needs.assign(slower_transfer_ns=(needs["slower_transfer_ns"] * left).round().astype("int64"))


def are_alone(needs: pd.DataFrame) -> pd.Series:
    """Mask of the rows of ranks with a role that no other rank has."""
    of_peers = needs.groupby("peers")["rank"].transform("nunique")
    return needs["peers"].str.startswith(_ROLE) & (of_peers == 1)


def _counts(table: pd.DataFrame, name: str, every: np.ndarray) -> np.ndarray:
    """How large a `count` each of these ranks has of each name."""
    made = table.pivot_table(index="rank", columns=name, values="count", aggfunc="sum", fill_value=0, observed=True)
    counts: np.ndarray = made.reindex(every, fill_value=0).to_numpy(dtype=np.int64)
    return counts


def _alike(counts: np.ndarray, of: np.ufunc) -> np.ndarray:
    """Which ranks have half in common of what either has (`np.maximum`), or of what the one with less has.

    Who computes the same otherwise, with attention written out, say, runs operators more, but the others' as well. Of
    a rank without any, whose host is not recorded, it is not known, and it has as much as it is asked for.
    """
    every = of(counts[:, None], counts[None]).sum(axis=2) if of is np.maximum else of.outer(*2 * [counts.sum(axis=1)])
    alike: np.ndarray = np.minimum(counts[:, None], counts[None]).sum(axis=2) >= ALIKE * every
    return alike


def _joined(alike: np.ndarray) -> np.ndarray:
    """Of each row the lowest one that it is joined with, directly or by way of others."""
    lowest, before = np.arange(len(alike)), None
    joined = alike | alike.T | np.eye(len(alike), dtype=bool)
    while before is None or (lowest != before).any():
        before = lowest
        lowest = np.where(joined, lowest, len(alike)).min(axis=1)
    return lowest
