"""Collectives: calls, bytes, transfer, wait, algbw, busbw."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import grouping
from traceanalyzer.analyses.base import (
    COLLECTIVE,
    GROUP_IF_KNOWN,
    GROUP_LABEL,
    GROUP_RANKS,
    RANK,
    STEP_OF_LAUNCH,
    Result,
    percent,
    ratio,
    stack,
)
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.communication.matching import LEAST_UNCERTAINTY_NS, SIZES_FROM, sizes_from
from traceanalyzer.analyses.communication.waits import CallWaits, Members, listed, looked_at
from traceanalyzer.analyses.grouping import Groups as Rows
from traceanalyzer.analyses.grouping import at_places, places_of, rows_of_each
from traceanalyzer.analyses.time.breakdown import OVERLAP, overlap_of
from traceanalyzer.analyses.time.intervals import Intervals, union
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.job.run_info import nvlinks
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.meaning.gpus import gpu_of
from traceanalyzer.model import RankTrace, whole_capture
from traceanalyzer.model.tables import columns_of, plain_texts, sorted_by, table_of, whole, with_columns

KEYS = ("group", "group_ranks", "collective", "size_class", "rank")

_CLASS_ENDS_BYTES = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
SIZE_CLASSES = ("≤ 64 KiB", "≤ 1 MiB", "≤ 16 MiB", "≤ 256 MiB", "> 256 MiB", "unknown")
"""By the size of the full array."""

_RANKS_OF_ONE_HOST = 8


class Collectives(Result):
    """One row for each process group, collective, size class and rank. Rates are of transfer, not of duration."""

    title = "Collectives: transfer, wait and bandwidth"
    keys = KEYS
    joined_by = ("collective",)
    columns = {
        "group": GROUP_IF_KNOWN,
        "group_label": GROUP_LABEL,
        "group_ranks": GROUP_RANKS,
        "collective": COLLECTIVE,
        "size_class": Column.text("Class of the full array's size.", is_secondary=True),
        "rank": RANK,
        "group_size": Column.number(
            "Ranks in the group; where the trace does not say, those that use it.", is_aside=True
        ),
        "calls": Column.count("Calls that are looked at.", is_aside=True),
        "split_calls": Column.count("Calls whose transfer and wait are known.", is_compared=False, is_secondary=True),
        "size_bytes": Column.size("Sum of the sizes of the calls; n/a when one is unknown.", is_aside=True),
        "sizes_from": Column.text(SIZES_FROM, is_aside=True),
        "total_ns": Column.time("Sum of the calls' durations.", leads=True),
        "transfer_ns": Column.time("Sum of the transfers; n/a when none is known.", is_news_when_zero=True),
        "wait_ns": Column.time(
            "Sum of the waits, hidden ones included; n/a when none is known.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "why_not_split": Column.text("Why transfer and wait of some calls are not known."),
        "algbw_gbps": Column.rate("Decimal GB/s: sizes of the split calls / their transfer."),
        "busbw_gbps": Column.rate(
            "algbw × 2(n−1)/n for all-reduce, (n−1)/n for all-gather, reduce-scatter and all-to-all, else 1.",
            better=Better.MORE,
        ),
        "path": Column.text("The farthest path between two GPUs of the group, as `groups` has it.", is_aside=True),
        "transport": Column.text("How NCCL joins the group's ranks, as `groups` has it."),
        "link_peak_gbps": Column.rate(
            "What the GPU's NVLinks carry in one direction: of two ranks those between them, where the topology is "
            "known; else all, by the GPU's model. n/a when the GPU model is unknown, the topology joins them by "
            "something else, or the group has more than 8 ranks and may span hosts."
        ),
        "peak_pct": Column.share(
            "100 · busbw / link peak; n/a for send_recv, whose sizes are of both directions.", better=Better.MORE
        ),
    }

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
    columns = columns_of(calls)
    is_split = ~columns["transfer_ns"].isna()
    columns["size_class"] = size_classes(calls["size_bytes"]).to_numpy()
    by_key = Rows.of(columns, KEYS, with_absent=True)
    split_bytes = by_key.total(calls["size_bytes"].where(is_split).array)
    is_known = by_key.keys["size_class"] != SIZE_CLASSES[-1]
    table = by_key.table(
        group_size=by_key.first_known(columns["group_size"]),
        calls=by_key.counts(),
        split_calls=by_key.sums(is_split.astype(np.int64)),
        total_ns=by_key.sums(columns["end_ns"] - columns["start_ns"]),
        why_not_split=by_key.told(columns["why_not_split"], listed),
        sizes_from=by_key.told(columns["arguments"], sizes_from),
        **{name: by_key.total(columns[name]) for name in ("size_bytes", "transfer_ns", "wait_ns")},
        split_bytes=pd.Series(split_bytes).where(is_known),
    )
    label = labels(groups, table)
    of_group = places_of({"group_label": label.array}, groups.table, ["group_label"])
    joined = {name: at_places(groups.table[name], of_group) for name in ("path", "transport")}
    devices = table["rank"].map(ranks.table.set_index("rank")["device_name"])
    rows = zip(devices, table["group_size"], joined["path"], strict=True)
    peaks = pd.array([_peak(*row) for row in rows], dtype="Int64")
    return Collectives(with_columns(table, group_label=label, **joined, link_peak_gbps=peaks))


def size_classes(size_bytes: pd.Series) -> pd.Series:
    """The class of each size; `unknown` where it is absent."""
    place = np.searchsorted(_CLASS_ENDS_BYTES, whole(size_bytes, 0), side="left")
    names = np.array(SIZE_CLASSES, dtype=object)[np.where(size_bytes.isna(), -1, place)]
    return pd.Series(names, index=size_bytes.index)


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


def _peak(device_name: object, group_size: Any, path: object) -> int | None:
    """GB/s of a rank's links to its group."""
    gpu, size = gpu_of(device_name if isinstance(device_name, str) else None), 0 if pd.isna(group_size) else group_size
    if gpu is None:
        return None
    if isinstance(path, str):
        links = nvlinks(path)
        if links is None or gpu.nvlink_gbps is None:
            return None
        if size == 2:
            return links * gpu.nvlink_gbps
    return gpu.all_nvlinks_gbps if 0 < size <= _RANKS_OF_ONE_HOST else None


class CollectiveWaits(Result):
    """One row for each rank and collective of which a wait is known, of all groups and sizes."""

    title = "Waiting, by rank and collective"
    keys = ("rank", "collective")
    is_of_one_run = True
    columns = {
        "rank": RANK,
        "collective": COLLECTIVE,
        "wait_ns": Column.time(
            "Time inside such calls before their last rank came, hidden or not: sum over calls.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "all_wait_ns": Column.time("The same of all the rank's collectives.", adds=Adds.DERIVED, better=Better.LESS),
    }


def collective_waits_across(collectives: Collectives) -> CollectiveWaits:
    """Sum what `collectives` has of each group and size class."""
    known = collectives.table[collectives.table["wait_ns"].notna()]
    if known.empty:
        return CollectiveWaits.without_rows()
    waits = known.groupby(list(CollectiveWaits.keys), observed=True)["wait_ns"].sum().astype("Int64")
    table = waits.reset_index()
    return CollectiveWaits(table.assign(all_wait_ns=table.groupby("rank")["wait_ns"].transform("sum")))


class Instances(Result):
    """One row for each collective, or exchange of messages between two ranks, in order of start."""

    title = "Collectives seen on all their ranks"
    is_detail = True
    keys = ("instance",)
    is_of_one_run = True
    columns = {
        "instance": Column.ident("Number, in order of first start."),
        "collective": COLLECTIVE,
        "group": GROUP_IF_KNOWN,
        "group_ranks": GROUP_RANKS,
        "step": STEP_OF_LAUNCH,
        "ranks": Column.count("Ranks that take part.", is_compared=False),
        "size_bytes": Column.size(
            "Size of the full array; absent when unknown or not the same on all ranks.", is_aside=True
        ),
        "start_ns": Column.moment("First start."),
        "end_ns": Column.moment("Last end."),
        "transfer_ns": Column.time(
            "Shortest duration over ranks; absent for one root or uneven splits.", is_news_when_zero=True
        ),
        "mean_wait_ns": Column.time("Mean of duration − transfer over ranks.", adds=Adds.DERIVED),
        "max_wait_ns": Column.time("Longest of them.", adds=Adds.EXTREME),
        "max_wait_rank": Column.ident("Rank with the longest."),
        "last_rank": Column.ident("Rank that came last: the least wait."),
        "skew_ns": Column.time(
            "Last start − first start on the aligned clocks; absent when within their uncertainty.", adds=Adds.DERIVED
        ),
        "first_rank": Column.ident("Rank that came first on these clocks; absent where the skew is."),
        "skew_uncertainty_ns": Column.time("What the skew is sure to.", adds=Adds.DERIVED),
        "matched_by": Column.text("How it was found."),
        "is_ambiguous": Column.flag("The clock offset that decided had a rival with 90 % of its votes."),
    }


def instances_across(members: Members, clocks: Clocks) -> Instances:
    """Gather the members of each instance."""
    held = members.table[members.table["is_whole"].fillna(value=False)] if len(members) else members.table
    if held.empty:
        return Instances(held.reindex(columns=list(Instances.columns)))
    own = held.groupby("instance")
    shared = ["collective", "group", "group_ranks", "step", "transfer_ns", "matched_by", "is_ambiguous"]
    table = (
        own[shared]
        .first()
        .assign(ranks=own["rank"].nunique(), start_ns=own["start_ns"].min(), end_ns=own["end_ns"].max())
    )
    size, is_known = own["size_bytes"].max(), own["size_bytes"].count() == own.size()
    table["size_bytes"] = size.where(is_known & (size == own["size_bytes"].min()).fillna(value=False))
    # Of equal waits the highest rank has the longest, and the lowest came last.
    by_wait = held[held["wait_ns"].notna()].sort_values(["wait_ns", "rank"]).groupby("instance")
    table["mean_wait_ns"] = by_wait["wait_ns"].mean().round().astype("Int64")
    table["max_wait_ns"] = by_wait["wait_ns"].max()
    table["max_wait_rank"] = by_wait["rank"].last().astype("Int64")
    table["last_rank"] = by_wait["rank"].first().astype("Int64")
    # Spread of the starts, where it is more than the clocks' uncertainty.
    known = clocks.to_frame().set_index("rank")
    offset, uncertainty = (held["rank"].map(known[name]).astype("Int64") for name in ("offset_ns", "uncertainty_ns"))
    starts = held.assign(start_ns=held["start_ns"] - offset).sort_values("start_ns", kind="stable").groupby("instance")
    skew = starts["start_ns"].max() - starts["start_ns"].min()
    sure = uncertainty.groupby(held["instance"]).max().clip(lower=LEAST_UNCERTAINTY_NS)
    is_known = (starts["start_ns"].count() == starts.size()) & (skew > sure).fillna(value=False)
    table["skew_ns"] = skew.where(is_known)
    table["first_rank"] = starts["rank"].first().astype("Int64").where(is_known)
    table["skew_uncertainty_ns"] = sure
    return Instances(table.reset_index())


NCCL_KEYS = ("group", "collective", "dtype")


class Nccl(Result):
    """One row for each rank, process group, collective and dtype; longest total first within a rank."""

    title = "Communication"
    keys = ("rank", *NCCL_KEYS)
    joined_by = ("collective", "dtype")
    columns = {
        "rank": RANK,
        "group": GROUP_IF_KNOWN,
        "group_label": GROUP_LABEL,
        "group_description": Column.text("What the group is for.", is_secondary=True, replaced_by="group_label"),
        "group_size": Column.number(
            "Ranks in the group; where the trace does not say, those that use it.", is_aside=True
        ),
        "collective": COLLECTIVE,
        "dtype": Column.text("Element type; absent when the trace does not say.", written=Written.DTYPE, is_aside=True),
        "reduction": Column.text(
            "What the collective reduces by, several separated by commas; absent when the trace does not say.",
            is_aside=True,
        ),
        "calls": Column.count("Communication operations on the GPU.", is_aside=True),
        "size_bytes": Column.size(
            "Sum of their sizes (full arrays); n/a as long as the size of one is unknown.", is_aside=True
        ),
        "sizes_from": Column.text(SIZES_FROM, is_aside=True),
        "calls_of_unknown_size": Column.count("Calls for which the trace has no sizes.", is_secondary=True),
        "known_size_bytes": Column.size("Sum of the sizes that are known.", is_secondary=True),
        "total_ns": Column.time("Sum of the calls' durations, waiting for other ranks included.", leads=True),
        "mean_ns": Column.time("Total / calls.", adds=Adds.DERIVED),
        "min_ns": Column.time("Shortest.", adds=Adds.EXTREME),
        "max_ns": Column.time("Longest.", adds=Adds.EXTREME),
        "comm_ns": Column.time("Time in which at least one of the calls runs.", is_secondary=True, better=Better.LESS),
        "exposed_comm_ns": Column.time("Part of it in which no compute runs.", better=Better.LESS),
        "overlap_pct": OVERLAP,
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(
            mean_ns=ratio(table["total_ns"], table["calls"]),
            size_bytes=table["known_size_bytes"].where(table["calls_of_unknown_size"] == 0),
            overlap_pct=overlap_of(table["comm_ns"] - table["exposed_comm_ns"], table["comm_ns"]),
        )


def per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """Group the rank's calls; exposed time is |∪calls of the row − ∪compute|, calls at their full length."""
    if calls.empty:
        return pd.DataFrame()
    compute = union(trace, "compute", whole_capture(trace.gpu_ops))
    columns = columns_of(calls)
    starts, ends, sizes = (columns[name] for name in ("start_ns", "end_ns", "size_bytes"))
    groups = grouping.Groups.of(columns, NCCL_KEYS, with_absent=True)
    busy = [Intervals.of(starts[rows], ends[rows]) for rows in rows_of_each(groups.of_row)]
    texts = {
        "group_description": groups.told(columns["group_description"], _one),
        "reduction": groups.told(columns["reduction"], lambda own: ", ".join(sorted(own)) or None),
        "sizes_from": groups.told(columns["arguments"], sizes_from),
    }
    return sorted_by(
        table_of(
            {
                **{name: plain_texts(own) for name, own in groups.keys.items()},
                **{name: np.array(own, dtype=object) for name, own in texts.items()},
                "calls": groups.counts(),
                "calls_of_unknown_size": groups.sums(sizes.isna().astype(np.int64)),
                "known_size_bytes": groups.total(sizes),
                "total_ns": groups.sums(ends - starts),
                "min_ns": groups.smallest(ends - starts),
                "max_ns": groups.largest(ends - starts),
                "comm_ns": np.array([own.total_ns for own in busy]),
                "exposed_comm_ns": np.array([(own - compute).total_ns for own in busy]),
            }
        ),
        "total_ns",
    )


def nccl_across(parts: Mapping[int, pd.DataFrame], groups: Groups, call_waits: CallWaits, calls: Calls) -> Nccl:
    """The ranks' rows under each other, with the groups' sizes as matching found them, where its calls agree."""
    table = stack(parts, tuple(Nccl.columns))
    keys = ["rank", *NCCL_KEYS]
    held = looked_at(call_waits, calls)
    sizes = pd.array([None] * len(table), dtype="Int64")
    if len(table) and len(held):
        of_calls = grouping.Groups.of(held, keys, with_absent=True)
        told = np.array(of_calls.told(held["group_size"].array, _one), dtype=object)
        found = at_places(told, places_of(table, of_calls.keys, keys), absent=None)
        sizes = pd.array(found.tolist(), dtype="Int64")
    return Nccl(with_columns(table, group_label=labels(groups, table), group_size=sizes))


def _one(values: list[object]) -> object:
    """The value, where there is one."""
    return values[0] if len(values) == 1 else None
