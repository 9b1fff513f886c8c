"""Which ranks run the same kernels that spin on peers, where no call names their group."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.communication.call_lists import waits_of

_ONE_TO_ONE = ("rma", "unknown")


def spinning_without_group(calls: pd.DataFrame, mask: np.ndarray) -> np.ndarray:
    """Rows within `mask` of kernels that wait for all ranks of a group: neither one-sided ones nor signals."""
    if not mask.any():
        return np.flatnonzero(mask)
    is_spinning = waits_of(calls[mask]).isin((kinds.PEERS, kinds.WAIT_ONLY)).to_numpy()
    is_of_pair = calls.loc[mask, "collective"].isin(_ONE_TO_ONE).to_numpy()
    is_signal = calls.loc[mask, "name"].astype("str").str.contains("_signal").to_numpy()
    rows: np.ndarray = np.flatnonzero(mask)[is_spinning & ~is_of_pair & ~is_signal]
    return rows


def never_names_group(calls: pd.DataFrame) -> np.ndarray:
    """Calls of kernels that are launched by no host call with arguments: those of NCCL's rivals."""
    names = calls["name"].astype("object")
    known = {name: kinds.comm_kernel(str(name)) for name in names.unique()}
    is_bare = {name: kernel is not None and kernel.sizes != kinds.CALL for name, kernel in known.items()}
    mask: np.ndarray = names.map(is_bare).to_numpy(dtype=bool)
    return mask


def by_template_size(
    calls: pd.DataFrame, rows: np.ndarray, present: frozenset[int]
) -> Iterator[tuple[np.ndarray, frozenset[int] | None]]:
    """The rows by the group's size that their names tell, each with the ranks that may be it.

    Kernels whose names tell no size are taken for the whole job's. `None`: nothing tells which ranks.
    """
    world = calls["world_size"].max() if "world_size" in calls else pd.NA
    job = present if pd.isna(world) else frozenset(range(int(world)))
    sizes = calls["group_size"].iloc[rows].fillna(len(job)).to_numpy(dtype=np.int64)
    ranks = calls["rank"].to_numpy()[rows]
    for size in np.unique(sizes):
        held = rows[sizes == size]
        if size == len(job):
            yield held, job
            continue
        groups = _named_groups(calls, int(size))
        told = np.isin(ranks[sizes == size], [rank for group in groups for rank in group])
        yield from ((held[np.isin(ranks[sizes == size], list(group))], group) for group in groups)
        if not told.all():
            yield held[~told], None


def _named_groups(calls: pd.DataFrame, size: int) -> list[frozenset[int]]:
    """Groups of this size that other calls name, if no rank is in two of them."""
    texts = calls["group_ranks"].dropna().unique()
    listed = [text.split(",") for text in texts if isinstance(text, str) and kinds.CUT_LIST not in text]
    groups = list({frozenset(map(int, ranks)) for ranks in listed if len(ranks) == size})
    members = [rank for group in groups for rank in group]
    return sorted(groups, key=min) if len(members) == len(set(members)) else []
