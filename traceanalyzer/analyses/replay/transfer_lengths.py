"""What transfers take at a given rate, as others of their kind, or as those of groups that are not changed."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.collectives import bus_factors
from traceanalyzer.analyses.communication.sister_groups import at_most_ns
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.replay.job import Job
from traceanalyzer.model.tables import array_of

SMALL_BYTES = 1 << 20
BUCKETED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
"""Collectives of which several can be one: those of at most so many bytes cost their latency."""


def are_small(calls: pd.DataFrame) -> np.ndarray:
    """Mask of the calls that buckets can hold, of at most 1 MiB each; those of unknown size are none."""
    is_small = is_true(calls["size_bytes"] <= SMALL_BYTES)
    mask: np.ndarray = (is_small & calls["collective"].isin(BUCKETED)).to_numpy(dtype=bool)
    return mask


def at_rate(job: Job, gb_per_s: float) -> np.ndarray:
    """What each matched call's transfer takes at a bus bandwidth; without end where its size is not known.

    Nor is that of a group of which a rank has no trace: what follows the last of the others may be a wait for it.
    """
    joins = job.joins
    ranks = joins.groupby("instance")["rank"].transform("nunique")
    factor = bus_factors(joins["collective"], ranks.astype("Int64")).astype("Float64")
    taken = (joins["size_bytes"] * factor / gb_per_s).astype("Float64").where(joins["is_whole"])
    held: np.ndarray = taken.fillna(np.iinfo(np.int64).max // 2).to_numpy(dtype=np.float64)
    return np.round(held).astype(np.int64)


def even(job: Job, transfer_ns: np.ndarray) -> np.ndarray:
    """Transfers scaled to the median of the instances of the same collective, size and number of ranks."""
    joins = job.joins
    table = joins.assign(ns=transfer_ns).groupby("instance")
    own = table["ns"].min()
    kind = [table["collective"].min(), table["size_bytes"].max(), table.size()]
    median = own.groupby([values.to_numpy() for values in kind], dropna=False).transform("median")
    return _scaled(joins, transfer_ns, (median / own.where(own > 0)).fillna(1.0))


def as_on_peers(job: Job, transfer_ns: np.ndarray, ranks: frozenset[int] | None) -> np.ndarray:
    """Transfers between the changed ranks alone as long as the median of the others' of the same collective and size.

    Each group counts once, and of two in the middle the shorter: slow links of other ranks are no measure.
    Where the others move other numbers of bytes, what so many take them at most. What they have none of takes no time.
    Transfers that others take part in stay.
    """
    joins = job.joins
    table = joins.assign(ns=transfer_ns, is_own=joins["rank"].isin(ranks or job.nodes)).groupby("instance")
    own, is_own, size = table["ns"].min(), table["is_own"].all(), table["size_bytes"].max()
    kind = Groups.of({"collective": table["collective"].min().to_numpy(), "ranks": table.size().to_numpy()},
                     ["collective", "ranks"], with_absent=True).of_row  # fmt: skip
    keys = [pd.Series(kind, own.index, name="kind"), size.rename("size")]
    each = own.where(~is_own).groupby([*keys, table["rank"].min().rename("low"), table["rank"].max().rename("high")],
                                      dropna=False).median()  # fmt: skip
    usual = each.groupby(level=["kind", "size"], dropna=False).quantile(0.5, interpolation="lower")
    others = pd.Series(usual.reindex(pd.MultiIndex.from_arrays(keys)).to_numpy(), own.index)
    others = others.where(others.notna() | ~is_own, _of_other_sizes(kind, size, own, is_own)).fillna(0)
    factor = pd.Series(np.minimum(others, own) / own.where(own > 0)).fillna(1.0).where(is_own, 1.0)
    return _without_longer_ones(joins, transfer_ns, _scaled(joins, transfer_ns, factor), own)


def as_in_other_steps(job: Job, transfer_ns: np.ndarray, is_chosen: np.ndarray) -> np.ndarray:
    """The chosen transfers no longer than the median of the others between the same ranks, of collective and size."""
    joins = job.joins
    table = joins.assign(ns=transfer_ns, is_chosen=is_chosen).groupby("instance")
    own, chosen = table["ns"].min(), table["is_chosen"].any()
    kind = [
        table["collective"].min(),
        table["size_bytes"].max(),
        *(table["rank"].agg(end) for end in ("min", "max", "size")),
    ]
    usual = own.where(~chosen).groupby([values.to_numpy() for values in kind], dropna=False).transform("median")
    factor = (usual.clip(upper=own) / own.where(own > 0)).where(chosen).fillna(1.0)
    return _scaled(joins, transfer_ns, factor)


def _without_longer_ones(joins: pd.DataFrame, before: np.ndarray, after: np.ndarray, shortest: pd.Series) -> np.ndarray:
    """What is left of calls that hold several messages: beside one that is shorter now the others take what they take.

    All messages of a call end with it; what each takes is what its other end shows.
    """
    is_shorter = pd.Series(after < before, joins.index)
    is_beside = is_shorter.groupby([joins["rank"], joins["op"]]).transform("any") & ~is_shorter
    own = shortest.reindex(joins["instance"]).to_numpy()
    left: np.ndarray = np.where(is_beside, np.minimum(after, own), after).astype(np.int64)
    return left


def _of_other_sizes(kind: np.ndarray, size: pd.Series, own: pd.Series, is_own: pd.Series) -> pd.Series:
    """Of each kind and size what so many bytes take the others at most; absent where they have none of the kind."""
    table = pd.DataFrame({"kind": kind, "size": size.astype("float64"), "ns": own.astype("float64"), "is_own": is_own})
    beside = table[~table["is_own"]].groupby(["kind", "size"])["ns"].median().reset_index()
    asked = table[table["is_own"]].drop_duplicates(["kind", "size"])
    known = {}
    for each, size_bytes in asked[["kind", "size"]].dropna().itertuples(index=False):
        rows = beside[beside["kind"] == each]
        if len(rows):
            known[each, size_bytes] = at_most_ns(size_bytes, array_of(rows, "size"), array_of(rows, "ns")).min()
    return pd.Series([known.get(pair, np.nan) for pair in zip(kind, table["size"], strict=True)], table.index)


def _scaled(joins: pd.DataFrame, transfer_ns: np.ndarray, factor: pd.Series) -> np.ndarray:
    scaled: np.ndarray = np.round(transfer_ns * factor.reindex(joins["instance"]).to_numpy()).astype(np.int64)
    return scaled
