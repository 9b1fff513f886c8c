"""Collectives: calls, bytes, transfer, wait, algbw, busbw; and groups whose links are slow."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import (
    COLLECTIVE,
    GROUP_IF_KNOWN,
    GROUP_LABEL,
    GROUP_RANKS,
    RANK,
    Result,
    percent,
    ratio,
    stack,
)
from traceanalyzer.analyses.breakdown import OVERLAP
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.clocks import HOST_RANKS, hosts_of
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.communication.waits import CallWaits, listed, looked_at
from traceanalyzer.analyses.grouping import Groups as Rows
from traceanalyzer.analyses.grouping import rows_of_each
from traceanalyzer.analyses.intervals import Intervals, union
from traceanalyzer.analyses.statistics import SIGMAS
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.job.run_info import nvlinks
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.columns import Better, Column, declared
from traceanalyzer.meaning.gpus import gpu_of
from traceanalyzer.model import RankTrace, whole_capture
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    as_objects,
    columns_of,
    nullable,
    plain_texts,
    sorted_by,
    table_of,
    texts_of,
    whole,
    whole_of,
)

KEYS = ("group", "group_ranks", "collective", "size_class", "rank")

_CLASS_ENDS_BYTES = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
SIZE_CLASSES = ("≤ 64 KiB", "≤ 1 MiB", "≤ 16 MiB", "≤ 256 MiB", "> 256 MiB", "unknown")
"""By the size of the full array."""


class Collectives(Result):
    """One row for each process group, collective, size class and rank. Rates are of transfer, not of duration."""

    title = "Collectives: transfer, wait and bandwidth"
    keys = KEYS
    joined_by = ("collective",)
    columns = declared(
        group=GROUP_IF_KNOWN,
        group_label=GROUP_LABEL,
        group_ranks=GROUP_RANKS,
        collective=COLLECTIVE,
        size_class=Column.text("Class of the full array's size.", is_secondary=True),
        rank=RANK,
        group_size="Ranks in the group; where the trace does not say, those that use it.",
        calls="Calls that are looked at.",
        size_bytes="Sum of the sizes of the calls; n/a when one is unknown.",
        total_ns=Column.time("Sum of the calls' durations.", leads=True),
        transfer_ns=Column.time("Sum of the transfers; n/a when none is known.", is_news_when_zero=True),
        wait_ns="Sum of the waits, hidden ones included; n/a when none is known.",
        why_not_split="Why transfer and wait of some calls are not known.",
        algbw_gbps="Decimal GB/s: sizes of the split calls / their transfer.",
        busbw_gbps=Column.rate(
            "algbw × 2(n−1)/n for all-reduce, (n−1)/n for all-gather, reduce-scatter and all-to-all, else 1.",
            better=Better.MORE,
        ),
        path=Column.text("The farthest path between two GPUs of the group, as `groups` has it.", is_aside=True),
        transport="How NCCL joins the group's ranks, as `groups` has it.",
        link_peak_gbps=(
            "What the GPU's NVLinks carry in one direction: of two ranks those between them, where the topology is "
            "known; else all, by the GPU's model. n/a when the GPU model is unknown, the topology joins them by "
            "something else, or the group has more than 8 ranks and may span hosts."
        ),
        peak_pct=Column.share(
            "100 · busbw / link peak; n/a for send_recv, whose sizes are of both directions.", better=Better.MORE
        ),
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        algbw = ratio(table["split_bytes"], table["transfer_ns"])
        busbw = algbw * bus_factors(table["collective"], table["group_size"])
        one_way = busbw.where(table["collective"] != "send_recv")
        return table.assign(algbw_gbps=algbw, busbw_gbps=busbw, peak_pct=percent(one_way, table["link_peak_gbps"]))


def collectives_across(call_waits: CallWaits, calls: Calls, ranks: Ranks, groups: Groups) -> Collectives:
    """Sum the calls that are looked at: all, or those of the selected steps (matched over the whole capture)."""
    return summed(looked_at(call_waits, calls), ranks, groups)


def summed(calls: pd.DataFrame, ranks: Result, groups: Result) -> Collectives:
    """The same of some calls: rows of the table of `CallWaits`."""
    if calls.empty:
        return Collectives(calls.reindex(columns=[*Collectives.columns, "split_bytes"]))
    sizes, place = calls["size_bytes"], np.searchsorted(_CLASS_ENDS_BYTES, whole_of(calls, "size_bytes", 0))
    by_key = calls.assign(
        size_class=np.array(SIZE_CLASSES, dtype=object)[np.where(sizes.isna(), -1, place)],
        total_ns=calls["end_ns"] - calls["start_ns"],
        split_bytes=sizes.where(calls["transfer_ns"].notna()),
    ).groupby([*KEYS], dropna=False, observed=True)
    sums = by_key[["total_ns", "size_bytes", "transfer_ns", "wait_ns", "split_bytes"]].sum(min_count=1)
    table = sums.assign(
        group_size=by_key["group_size"].first(),
        calls=by_key.size(),
        why_not_split=by_key["why_not_split"].agg(lambda texts: listed(texts.dropna())),
    ).reset_index()
    label, known = labels(groups, table), groups.table.drop_duplicates("group_label").set_index("group_label")
    joined = {name: label.map(known[name]).astype("object") for name in ("path", "transport")}
    devices = table["rank"].map(ranks.table.set_index("rank")["device_name"])
    peaks = [_peak(*row) for row in zip(devices, table["group_size"].fillna(0), joined["path"], strict=True)]
    return Collectives(table.assign(group_label=label, **joined, link_peak_gbps=pd.array(peaks, dtype="Int64")))


def _peak(device_name: object, group_size: int, path: object) -> int | None:
    """GB/s of a rank's links to its group."""
    gpu = gpu_of(device_name if isinstance(device_name, str) else None)
    links = nvlinks(path) if isinstance(path, str) else None
    if gpu is None or (isinstance(path, str) and links is None):
        return None
    if links is not None and group_size == 2:
        return None if gpu.nvlink_gbps is None else links * gpu.nvlink_gbps
    return gpu.all_nvlinks_gbps if 0 < group_size <= HOST_RANKS else None


def bus_factors(collectives: pd.Series, group_sizes: pd.Series) -> pd.Series:
    """What busbw is of algbw; NA where the group's size is unknown and matters."""
    size = group_sizes.astype("Float64")
    share = (size - 1) / size
    is_twice = collectives == "all_reduce"
    is_shared = is_twice | collectives.isin(("all_gather", "reduce_scatter", "all_to_all"))
    return share.mask(is_twice, 2 * share).where(is_shared, 1.0)


def transfer_kinds(collectives: pd.Series) -> pd.Series:
    """What of each is one kind of transfer: the collective; of point-to-point operations all together."""
    names = collectives.astype("object")
    return names.where(~names.isin(POINT_TO_POINT), MESSAGES)


NCCL_KEYS = ("group", "collective", "dtype")


class Nccl(Result):
    """One row for each rank, process group, collective and dtype; longest total first within a rank."""

    title = "Communication"
    keys = ("rank", *NCCL_KEYS)
    joined_by = ("collective", "dtype")
    derived = {"mean_ns": "total_ns / calls", "overlap_pct": "comm_ns - exposed_comm_ns / comm_ns"}
    columns = declared(
        rank=RANK,
        group=GROUP_IF_KNOWN,
        group_label=GROUP_LABEL,
        group_description="What the group is for.",
        group_size="Ranks in the group; where the trace does not say, those that use it.",
        collective=COLLECTIVE,
        dtype="Element type; absent when the trace does not say.",
        calls="Communication operations on the GPU.",
        size_bytes="Sum of their sizes (full arrays); n/a as long as the size of one is unknown.",
        total_ns=Column.time("Sum of the calls' durations, waiting for other ranks included.", leads=True),
        mean_ns="Total / calls.",
        min_ns="Shortest.",
        max_ns="Longest.",
        comm_ns="Time in which at least one of the calls runs.",
        exposed_comm_ns="Part of it in which no compute runs.",
        overlap_pct=OVERLAP,
    )


def per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """Group the rank's calls; exposed time is |∪calls of the row − ∪compute|, calls at their full length."""
    if calls.empty:
        return pd.DataFrame()
    columns, compute = columns_of(calls), union(trace, "compute", whole_capture(trace.gpu_ops))
    groups = Rows.of(columns, NCCL_KEYS, with_absent=True)
    starts, ends, sizes, described = (
        columns[name] for name in ("start_ns", "end_ns", "size_bytes", "group_description")
    )
    busy = [Intervals.of(starts[rows], ends[rows]) for rows in rows_of_each(groups.of_row)]
    table = {
        **{name: as_objects(plain_texts(own)) for name, own in groups.keys.items()},
        "group_description": as_objects(texts_of(groups.only_known(described))),
        "calls": groups.counts(),
        "size_bytes": nullable(groups.sums(whole(sizes, 0)), groups.any(sizes.isna())),
        "total_ns": groups.sums(ends - starts),
        "min_ns": groups.smallest(ends - starts),
        "max_ns": groups.largest(ends - starts),
        "comm_ns": np.array([own.total_ns for own in busy]),
        "exposed_comm_ns": np.array([(own - compute).total_ns for own in busy]),
    }
    return sorted_by(table_of(table), "total_ns")


def nccl_across(parts: Mapping[int, pd.DataFrame], groups: Groups, call_waits: CallWaits, calls: Calls) -> Nccl:
    """The ranks' rows under each other, with the groups' sizes as matching found them, where its calls agree."""
    table, keys = stack(parts), ["rank", *NCCL_KEYS]
    if table.empty:
        return Nccl.without_rows()
    of_calls = looked_at(call_waits, calls).groupby(keys, dropna=False, observed=True)["group_size"]
    sizes = of_calls.agg(_one).astype("Int64").reset_index()
    return Nccl(table.merge(sizes, "left", keys).assign(group_label=labels(groups, table)))


def _one(values: pd.Series) -> object:
    """The known value, where there is but one."""
    known = values.dropna().unique()
    return known[0] if len(known) == 1 else None


# Groups whose links are slower than their sister groups'.


Links = frozenset[int]


class Owner(Struct, frozen=True):
    """The ranks whose links are slow; `is_most` where that is so of most of their groups, and not of all."""

    ranks: Links
    is_most: bool = False


def whose_links(slow: Collection[Links], every: Collection[Links], hosts: Mapping[int, str]) -> Mapping[Links, Owner]:
    """For each slow group whose links are slow: of the ranks of a host, or of one rank; nothing where that is open.

    All groups that lead from there to others are slow, with several partners, and none of them may be another rank's
    (host's) for the same reason. Groups are compared with all, then with those that stay within hosts, or leave them.
    At last a rank's of which more than half are slow, three at the least (fewer may be so many links by themselves),
    and no other rank's are so.

    Args:
        slow: the ranks of groups that move data for longer.
        every: of all groups that are compared with others, those among them.
        hosts: the host of each rank.
    """
    found: dict[Links, Owner] = {}
    of_host: dict[str, set[int]] = defaultdict(set)
    for rank in frozenset[int]().union(*every):
        of_host[hosts[rank]].add(rank)
    whole = [frozenset(ranks) for ranks in of_host.values() if len(ranks) > 1]
    alone = [frozenset({rank}) for rank in sorted(frozenset[int]().union(*slow))]
    within = {group for group in every if len({hosts[rank] for rank in group}) == 1}
    for owners in (whole, alone):
        for held in (every, within, {*every} - within):
            left = {group for group in slow if group in held and group not in found}
            beyond = {owner: [group for group in held if group & owner and group - owner] for owner in owners}
            partners = hosts if owners is whole else {}
            found |= _alone({owner: own for owner, own in beyond.items() if _fits(owner, own, left, partners)})
    left = {group for group in slow if group not in found}
    mostly: dict[Links, list[Links]] = {}
    for owner in alone:
        own = [group for group in every if owner < group]
        if 2 * len(lasting := [group for group in own if group in left]) > len(own) and len(lasting) > 2:
            mostly[owner] = lasting
    return found | _alone(mostly, is_most=True)


def _alone(fits: Mapping[Links, list[Links]], *, is_most: bool = False) -> dict[Links, Owner]:
    """The slow groups of each owner, none of which is another owner's too."""
    holders = Counter(group for groups in fits.values() for group in groups)
    unshared = {owner: own for owner, own in fits.items() if all(holders[group] == 1 for group in own)}
    return {group: Owner(owner, is_most) for owner, own in unshared.items() for group in own}


def _fits(owner: Links, beyond: Iterable[Links], slow: AbstractSet[Links], hosts: Mapping[int, str]) -> bool:
    """Whether all groups that lead from the owner to several partners, by their hosts where given, are slow.

    Of one partner alone the link may be either one's; of several ranks those through one of them are that one's.
    """
    partners = {frozenset(hosts.get(rank, rank) for rank in group - owner) for group in beyond}
    through = frozenset[int]().union(*beyond) & owner
    return len(partners) > 1 and len(through) >= min(2, len(owner)) and slow >= {*beyond}


_ALIKE = ("job", "kind", "ranks", "hosts", "size_bytes")
"""What transfers that are held against each other have in common, within a step."""


def instances_of(members: pd.DataFrame, ranks: pd.DataFrame, jobs: Mapping[int, int]) -> pd.DataFrame:
    """A row for each instance of `Members` of which transfer and size are known; `jobs` are the ranks' (`jobs_of`).

    Columns `instance`, `job`, `kind` (`transfer_kinds`), `ranks` and `hosts` (how many), `among` (the ranks), `step`
    (-1 without), `size_bytes`, `transfer_ns`.

    What a call waited for one of its peers is no other one's transfer. It ends with the last of its messages; at the
    other end of each stands another call, so that the shorter of the two tells a slow message from those beside it.
    """
    if members.empty:
        return pd.DataFrame()
    is_held = members[["instance", "transfer_ns", "size_bytes"]].notna().all(axis=1) & members["is_timed"].astype(bool)
    is_held &= ~(members["is_only_wait"] | members["moves_only"]).astype(bool)
    held = members[is_held].sort_values(["instance", "rank"], kind="stable")
    if held.empty:
        return pd.DataFrame()
    held = held.assign(
        job=held["rank"].map(jobs),
        kind=transfer_kinds(held["collective"]),
        host=held["rank"].map(hosts_of(ranks)),
        step=held["step"].fillna(NONE),
        among=held["rank"].astype("str"),
        transfer_ns=held.groupby(["rank", "call"])["transfer_ns"].transform("min"),
    )
    first = {name: (name, "first") for name in ("job", "kind", "step")}
    table = held.groupby("instance").agg(
        ranks=("rank", "size"),
        hosts=("host", "nunique"),
        size_bytes=("size_bytes", "max"),
        transfer_ns=("transfer_ns", "min"),
        among=("among", ",".join),
        **first,
    )
    whole = ("instance", "job", "ranks", "hosts", "step", "size_bytes", "transfer_ns")
    return table[table["ranks"] > 1].reset_index().astype(dict.fromkeys(whole, "int64"))


def usual_ns(instances: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """For each instance the mean transfer of its group's calls of that kind, size and step; and the sister groups'.

    Of these the median, of two in the middle the shorter: links are never too fast. NaN without sister groups that move
    as many bytes.
    """
    cells = Rows.of(instances, [*_ALIKE, "step", "among"])
    own_ns = cells.sums(array_of(instances, "transfer_ns")) / np.maximum(cells.counts(), 1)
    beside_ns = (
        pd.Series(own_ns).groupby(Rows.of(cells.keys, [*_ALIKE, "step"]).of_row).transform(_of_others).to_numpy()
    )
    return own_ns[cells.of_row], beside_ns[cells.of_row]


def is_beyond_chance(instances: pd.DataFrame, own_ns: np.ndarray, beside_ns: np.ndarray) -> np.ndarray:
    """Which instances' times, as `usual_ns` has them, chance does not explain: in their step, or in all together."""
    own, cells = np.log(np.maximum(own_ns, 1.0)), Rows.of(instances, [*_ALIKE, "step", "among"])
    more = own - np.log(np.where(beside_ns > 0, beside_ns, np.nan))
    table = cells.table(own=own[cells.first], more=more[cells.first], is_beyond=True)
    for _, alike in table.groupby(list(_ALIKE)):
        spread = _spread(alike.pivot_table(values="own", index="step", columns="among").to_numpy())
        by_group = alike["more"].fillna(0).groupby(alike["among"])
        is_always = by_group.transform("mean") >= SIGMAS * spread / np.sqrt(by_group.transform("size"))
        table.loc[alike.index, "is_beyond"] = (alike["more"] >= SIGMAS * spread) | is_always
    return array_of(table, "is_beyond")[cells.of_row]


def _spread(wide: np.ndarray) -> float:
    """How transfers (steps by groups) differ by chance, as a deviation of their logarithms.

    By those that are quicker than their step's usual one, for links are slow, never too fast: the median without the
    longest, of two the lesser. Where these are fewer than three (of two groups none), by those quicker than their own
    group's usual one, of which two differ by more than one from several; else nothing is known, and all counts.
    """
    for values, times in ((wide, 1.0), (wide.T, np.sqrt(2))):
        middle = np.maximum(np.count_nonzero(~np.isnan(values), axis=1) - 2, 0) // 2
        usual = np.take_along_axis(np.sort(values, axis=1), middle[:, None], axis=1)
        quicker = (usual - values)[usual > values]
        if len(quicker) > 2:
            return float(times * np.sqrt(np.mean(quicker**2)))
    return 0.0


def _of_others(values: pd.Series) -> Any:
    """For each value the median of the others, of two the lesser; NaN for one alone."""
    if len(values) < 2:
        return np.nan
    ranked, middle = np.sort(values), (len(values) - 2) // 2
    return np.where(values.rank(method="first") > middle + 1, ranked[middle], ranked[middle + 1])


def at_most_ns(size_bytes: float, sizes: np.ndarray, times_ns: np.ndarray) -> np.ndarray:
    """What so many bytes take at most over links that move each of these sizes in that time.

    Fewer take no longer, more no longer than at the same rate.
    """
    most_ns: np.ndarray = times_ns * np.maximum(1.0, size_bytes / np.maximum(sizes, 1))
    return most_ns
