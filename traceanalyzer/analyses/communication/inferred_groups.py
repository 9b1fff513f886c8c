"""Which ranks run the same kernels that spin on peers, where no call names their group."""

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer import kinds
from traceanalyzer.analyses.communication.call_lists import RANK_MISSING, told_of_kernels, waits_of
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.model.tables import array_of, table_of

_ONE_TO_ONE = ("rma", "unknown", "send", "recv")

"""A whole list: one that is cut, or damaged, tells no group."""

Partition = tuple[frozenset[int], ...]
"""Groups of one size of which no rank is in two; none where the groups are not known."""

_MOST = 0.9
"""Share of the calls that the best partition matches, from which on another one is a rival."""

_ALIKE, _LEAST_NS = 2, 1_000
"""Ends of one group's calls that scatter no more than twice as far as another's, or by a microsecond more, fit both."""


def spinning_without_group(calls: pd.DataFrame, mask: np.ndarray) -> np.ndarray:
    """Rows within `mask` of kernels that wait for ranks of a group: neither one-sided ones nor signals.

    Kernels that send and receive at once, one after the other around a ring, are among them.
    """
    if not mask.any():
        return np.flatnonzero(mask)
    held = calls[mask]
    is_spinning = waits_of(held).isin((kinds.PEERS, kinds.WAIT_ONLY)).to_numpy()
    is_of_pair = held["collective"].isin(_ONE_TO_ONE).to_numpy()
    is_signal = held["name"].astype("str").str.contains("_signal").to_numpy()
    is_message = (held["collective"] == "send_recv").to_numpy()
    is_known = ~is_message | never_names_group(held)
    rows: np.ndarray = np.flatnonzero(mask)[is_spinning & ~is_of_pair & ~is_signal & is_known]
    return rows


def is_ring(calls: pd.DataFrame) -> np.ndarray:
    """Calls that send to one rank of a group and receive from another, which are the same in groups of two."""
    mask: np.ndarray = (calls["collective"] == "send_recv").to_numpy() & never_names_group(calls)
    return mask


def never_names_group(calls: pd.DataFrame) -> np.ndarray:
    """Calls of kernels that are launched by no host call with arguments: those of NCCL's rivals."""
    return told_of_kernels(calls, lambda kernel: kernel is not None and kernel.sizes != kinds.CALL).astype(bool)


def possible_groups(
    calls: pd.DataFrame, rows: np.ndarray, present: frozenset[int]
) -> Iterator[tuple[np.ndarray, list[Partition]]]:
    """The rows by library and by the group's size that their names tell, each with the groups that may be theirs.

    Those are the whole job, and the groups that the ranks' files list or their other calls name.
    """
    if not len(rows):
        return
    world = calls["world_size"].max() if "world_size" in calls else pd.NA
    job = present if pd.isna(world) else frozenset(range(int(world)))
    names = calls["name"].iloc[rows].astype("object")
    libraries = {name: kernel.library for name in names.unique() if (kernel := kinds.comm_kernel(str(name)))}
    families = pd.factorize(names.map(libraries))[0]
    sizes = calls["group_size"].iloc[rows].fillna(0).to_numpy(dtype=np.int64)
    ranks = array_of(calls, "rank")[rows]
    listed = _partitions(calls)
    for family, size in sorted(set(zip(families.tolist(), sizes.tolist(), strict=True))):
        held = (families == family) & (sizes == size)
        users = frozenset(ranks[held].tolist())
        fitting = [groups for groups in listed if not size or len(groups[0]) == size]
        covering = [groups for groups in fitting if users <= frozenset().union(*groups)]
        whole = [(job,)] if size in (0, len(job)) else []
        choices = list(dict.fromkeys([*whole, *(covering or ([] if whole else fitting))]))
        yield rows[held], choices or [()]


def _partitions(calls: pd.DataFrame) -> list[Partition]:
    """Groups of two ranks and more, put together by size and by what the ranks' files call them, or by their shape."""
    named = calls[["group_description", "group_ranks"]] if "group_description" in calls else calls[["group_ranks"]]
    texts = [tuple(row) for row in named.dropna(subset="group_ranks").drop_duplicates().itertuples(index=False)]
    for text in calls["listed_groups"].dropna().unique() if "listed_groups" in calls else ():
        texts += [tuple(part.split("=", 1)) for part in text.split(";") if part]
    families: dict[tuple[object, int], set[frozenset[int]]] = {}
    for *description, ranks in texts:
        if group := frozenset(numbers(ranks)):
            shape = tuple(rank - min(group) for rank in sorted(group))
            for name in dict.fromkeys([None, shape, *description]):
                families.setdefault((name, len(group)), set()).add(group)
    found = [tuple(sorted(groups, key=sorted)) for (_, size), groups in families.items() if size > 1]
    return list(dict.fromkeys(groups for groups in found if _is_disjoint(groups)))


def _is_disjoint(groups: Iterable[frozenset[int]]) -> bool:
    members = [rank for group in groups for rank in group]
    return len(members) == len(set(members))


class Attempt(Struct, frozen=True):
    """What comes of taking calls for those of some groups: how many match, and how far their ends scatter."""

    partition: Partition
    members: pd.DataFrame
    why: np.ndarray
    scatter_ns: float

    @property
    def size(self) -> int:
        """Ranks of each group."""
        return len(self.partition[0]) if self.partition else 0


def decided(attempts: list[Attempt]) -> Attempt | None:
    """The attempt of which most calls match, to ends that scatter least; `None` where groups fit equally well.

    What ends together on all ranks does so in each part of them: of those that fit alike the largest groups speak, and
    where a larger one has a rank without a trace it may be that one.
    """
    most = max(len(one.members) for one in attempts)
    rivals = [one for one in attempts if len(one.members) >= _MOST * most]
    least = min(one.scatter_ns for one in rivals)
    alike = [one for one in rivals if one.scatter_ns <= max(_ALIKE * least, least + _LEAST_NS)]
    largest = max(one.size for one in alike)
    untried = [one for one in attempts if one.size > largest and (one.why == RANK_MISSING).any()]
    found = untried or [one for one in alike if one.size == largest]
    return found[0] if len(found) == 1 else None


def scatter_ns(members: pd.DataFrame, ranks: np.ndarray, ends_ns: np.ndarray) -> float:
    """How far the ends of one instance are from each other, clocks aside: the median over all calls."""
    if members.empty:
        return 0.0
    rows = array_of(members, "row")
    table = table_of({"instance": array_of(members, "instance"), "rank": ranks[rows], "end_ns": ends_ns[rows]})
    of_instance = table.groupby("instance")
    lead = of_instance["rank"].transform("first")
    apart = table["end_ns"] - of_instance["end_ns"].transform("first")
    residual = apart - apart.groupby([lead, table["rank"]]).transform("median")
    others = residual[(table["rank"] != lead).to_numpy()]
    return float(others.abs().median()) if len(others) else 0.0
