"""Collectives: calls, bytes, transfer, wait, algbw, busbw."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses import grouping
from traceanalyzer.analyses.base import Result, percent, ratio, stack
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
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    column_of,
    columns_of,
    floats,
    plain_texts,
    sorted_table,
    with_columns,
    without_rows,
)

# What each collective moved and how fast: transfer apart from wait, by group, size class and rank.


KEYS = ("group", "group_ranks", "collective", "size_class", "rank")

_CLASS_ENDS_BYTES = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
SIZE_CLASSES = ("≤ 64 KiB", "≤ 1 MiB", "≤ 16 MiB", "≤ 256 MiB", "> 256 MiB", "unknown")
"""By the size of the full array."""

_RANKS_OF_ONE_HOST = 8


class Collectives(Result):
    """One row for each process group, collective, size class and rank. Rates are of transfer, not of duration."""

    title: ClassVar[str] = "Collectives: transfer, wait and bandwidth"
    keys: ClassVar[tuple[str, ...]] = KEYS
    joined_by: ClassVar[tuple[str, ...]] = ("collective",)
    columns: ClassVar[Mapping[str, Column]] = {
        "group": Column.text("Process group; absent when the trace does not say.", replaced_by="group_label"),
        "group_label": Column.text(
            "What the group is for and its ranks, as `groups` has it.", label="process group", is_aside_when_one=True
        ),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
        "size_class": Column.text("Class of the full array's size.", is_secondary=True),
        "rank": Column.ident("Global rank."),
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
            "known; else all, by the GPU's model. n/a when the model does not tell, the topology joins them by "
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
        return self._with(
            table, {"algbw_gbps": algbw, "busbw_gbps": busbw, "peak_pct": percent(one_way, table["link_peak_gbps"])}
        )


def collectives_across(
    _parts: Mapping[int, pd.DataFrame], call_waits: CallWaits, calls: Calls, ranks: Ranks, groups: Groups
) -> Collectives:
    """Sum the calls that are looked at: all, or those of the selected steps (matched over the whole capture)."""
    return summed(looked_at(call_waits, calls), ranks, groups)


def summed(calls: pd.DataFrame, ranks: Result, groups: Result) -> Collectives:
    """The same of some calls: rows of the table of `CallWaits`."""
    if calls.empty:
        return Collectives(calls.reindex(columns=[*Collectives.columns, "split_bytes"]))
    columns = columns_of(calls)
    sizes, is_split = columns["size_bytes"], ~columns["transfer_ns"].isna()
    columns["size_class"] = size_classes(calls["size_bytes"]).to_numpy()
    by_key = Rows.of(columns, KEYS, with_absent=True)
    split_bytes = by_key.total(
        pd.arrays.IntegerArray(sizes.to_numpy(dtype=np.int64, na_value=0), sizes.isna() | ~is_split)
    )
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
    peaks = _link_peaks(table, ranks, joined["path"])
    return Collectives(with_columns(table, group_label=label, **joined, link_peak_gbps=peaks))


def size_classes(size_bytes: pd.Series) -> pd.Series:
    """The class of each size; `unknown` where it is absent."""
    place = np.searchsorted(_CLASS_ENDS_BYTES, size_bytes.fillna(0).to_numpy(dtype=np.int64), side="left")
    names = np.array(SIZE_CLASSES, dtype=object)
    return pd.Series(np.where(size_bytes.isna(), SIZE_CLASSES[-1], names[place]), index=size_bytes.index)


def bus_factors(collectives: pd.Series, group_sizes: pd.Series) -> pd.Series:
    """What busbw is of algbw; NA where the group's size is unknown and matters."""
    size, names = floats(group_sizes), collectives.to_numpy(dtype=object)
    share = np.divide(size - 1, size, out=np.full(len(size), -np.inf), where=size != 0)
    is_twice = names == "all_reduce"
    is_shared = is_twice | np.isin(names, ("all_gather", "reduce_scatter", "all_to_all"))
    factor = np.where(is_shared, np.where(is_twice, 2 * share, share), 1.0)
    is_absent = np.isnan(factor)
    return pd.Series(pd.arrays.FloatingArray(np.where(is_absent, 1.0, factor), is_absent), index=collectives.index)


def transfer_kinds(collectives: pd.Series) -> pd.Series:
    """What of each is one kind of transfer: the collective; of point-to-point operations all together."""
    names = collectives.astype("object")
    return names.where(~names.isin(POINT_TO_POINT), MESSAGES)


def _link_peaks(table: pd.DataFrame, ranks: Result, paths: np.ndarray) -> pd.api.extensions.ExtensionArray:
    names = dict(zip(ranks.table["rank"].tolist(), ranks.table["device_name"].tolist(), strict=True))
    devices = [names.get(rank) for rank in table["rank"].tolist()]
    sizes = table["group_size"].to_numpy(dtype=np.int64, na_value=0).tolist()
    peaks = [_peak(device if isinstance(device, str) else None, size, path)
             for device, size, path in zip(devices, sizes, paths.tolist(), strict=True)]  # fmt: skip
    return pd.array(peaks, dtype="Int64")


def _peak(device_name: str | None, group_size: int, path: object) -> int | None:
    """GB/s of a rank's links to its group."""
    gpu = gpu_of(device_name)
    if gpu is None:
        return None
    if isinstance(path, str):
        links = nvlinks(path)
        if links is None or gpu.nvlink_gbps is None:
            return None
        if group_size == 2:
            return links * gpu.nvlink_gbps
    return gpu.all_nvlinks_gbps if 0 < group_size <= _RANKS_OF_ONE_HOST else None


# How long each rank waits inside each collective.


class CollectiveWaits(Result):
    """One row for each rank and collective of which a wait is known, of all groups and sizes."""

    title: ClassVar[str] = "Waiting, by rank and collective"
    keys: ClassVar[tuple[str, ...]] = ("rank", "collective")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
        "wait_ns": Column.time(
            "Time inside such calls before their last rank came, hidden or not: sum over calls.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "all_wait_ns": Column.time("The same of all the rank's collectives.", adds=Adds.DERIVED, better=Better.LESS),
    }


def collective_waits_across(_parts: Mapping[int, pd.DataFrame], collectives: Collectives) -> CollectiveWaits:
    """Sum what `collectives` has of each group and size class."""
    known = collectives.table[collectives.table["wait_ns"].notna()]
    if known.empty:
        return CollectiveWaits(without_rows(CollectiveWaits.columns))
    waits = known.groupby(list(CollectiveWaits.keys), observed=True)["wait_ns"].sum().astype("Int64")
    table = waits.reset_index()
    return CollectiveWaits(table.assign(all_wait_ns=table.groupby("rank")["wait_ns"].transform("sum")))


# Every collective that was seen on all its ranks: transfer, waits, who came last.


class Instances(Result):
    """One row for each collective, or exchange of messages between two ranks, in order of start."""

    title: ClassVar[str] = "Collectives seen on all their ranks"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("instance",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "instance": Column.ident("Number, in order of first start."),
        "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
        "group": Column.text("Process group; absent when the trace does not say.", replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "step": Column.ident("Step that launched it; absent for none."),
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


def instances_across(_parts: Mapping[int, pd.DataFrame], members: Members, clocks: Clocks) -> Instances:
    """Gather the members of each instance."""
    held = members.table[members.table["is_whole"].fillna(value=False)] if len(members) else members.table
    if held.empty:
        return Instances(held.reindex(columns=list(Instances.columns)))
    groups = Rows.of(held, ["instance"])
    sizes = column_of(held, "size_bytes")
    plain = sizes.to_numpy(dtype=np.int64, na_value=NONE)
    size, is_one_size = groups.largest(plain), ~groups.any(sizes.isna())
    shared = ("collective", "group", "group_ranks", "step", "transfer_ns", "matched_by", "is_ambiguous")
    table = groups.table(
        **{name: groups.first_known(column_of(held, name)) for name in shared},
        ranks=groups.distinct(held["rank"].to_numpy(dtype=np.int64)),
        size_bytes=_instances_known(size, is_one_size & (groups.smallest(plain) == size)),
        start_ns=groups.smallest(held["start_ns"].to_numpy(dtype=np.int64)),
        end_ns=groups.largest(held["end_ns"].to_numpy(dtype=np.int64)),
        **_waits(held, groups),
        **_skew(held, groups, clocks),
    )
    return Instances(table)


def _instances_known(values: np.ndarray, is_known: np.ndarray) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values, ~is_known)


def _waits(held: pd.DataFrame, groups: Rows) -> dict[str, pd.arrays.IntegerArray]:
    """How long its ranks wait, as far as known, and which of them most and least: of equals the highest, the lowest."""
    waits = held["wait_ns"].to_numpy(dtype=np.int64, na_value=NONE)
    rank, is_known = held["rank"].to_numpy(dtype=np.int64), waits != NONE
    counts = groups.sums(is_known.astype(np.int64))
    mean = np.round(groups.sums(np.where(is_known, waits, 0)) / np.maximum(counts, 1)).astype(np.int64)
    rows = np.flatnonzero(is_known)
    order = rows[np.lexsort((rank[rows], waits[rows], groups.of_row[rows]))]
    most, least = np.full(len(groups), NONE), np.full(len(groups), NONE)
    most[groups.of_row[order]] = rank[order]
    least[groups.of_row[order[::-1]]] = rank[order[::-1]]
    of_each = {"mean_wait_ns": mean, "max_wait_ns": groups.largest(waits), "max_wait_rank": most, "last_rank": least}
    return {name: _instances_known(values, counts > 0) for name, values in of_each.items()}


def _skew(held: pd.DataFrame, groups: Rows, clocks: Clocks) -> dict[str, pd.arrays.IntegerArray]:
    """Spread of the starts, where it is more than the clocks' uncertainty."""
    clock = clocks.to_frame()
    place = places_of(held, clock, ["rank"])
    offset, uncertainty = (clock[name].array.take(place, allow_fill=True) for name in ("offset_ns", "uncertainty_ns"))
    starts = held["start_ns"].to_numpy(dtype=np.int64) - offset.to_numpy(dtype=np.int64, na_value=0)
    sure = groups.largest(uncertainty.to_numpy(dtype=np.int64, na_value=NONE))
    is_sure, sure = sure != NONE, np.maximum(sure, LEAST_UNCERTAINTY_NS)
    skew = groups.largest(starts) - groups.smallest(starts)
    is_known = ~groups.any(offset.isna()) & is_sure & (skew > sure)
    first = held["rank"].to_numpy(dtype=np.int64)[groups.at_largest(-starts)]
    return {
        "skew_ns": _instances_known(skew, is_known),
        "first_rank": _instances_known(first, is_known),
        "skew_uncertainty_ns": _instances_known(sure, is_sure),
    }


# Communication of each rank by process group, collective and dtype: calls, bytes, time, how much is exposed.


NCCL_KEYS = ("group", "collective", "dtype")


class Nccl(Result):
    """One row for each rank, process group, collective and dtype; longest total first within a rank."""

    title: ClassVar[str] = "Communication"
    keys: ClassVar[tuple[str, ...]] = ("rank", *NCCL_KEYS)
    joined_by: ClassVar[tuple[str, ...]] = ("collective", "dtype")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "group": Column.text("Process group; absent when the trace does not say.", replaced_by="group_label"),
        "group_label": Column.text(
            "What the group is for and its ranks, as `groups` has it.", label="process group", is_aside_when_one=True
        ),
        "group_description": Column.text("What the group is for.", is_secondary=True, replaced_by="group_label"),
        "group_size": Column.number(
            "Ranks in the group; where the trace does not say, those that use it.", is_aside=True
        ),
        "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
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
        return self._with(
            table,
            {
                "mean_ns": ratio(table["total_ns"], table["calls"]),
                "size_bytes": table["known_size_bytes"].where(table["calls_of_unknown_size"] == 0),
                "overlap_pct": overlap_of(table["comm_ns"] - table["exposed_comm_ns"], table["comm_ns"]),
            },
        )


def per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """Group the rank's calls; exposed time is |∪calls of the row − ∪compute|, calls at their full length."""
    if calls.empty:
        return pd.DataFrame()
    compute = union(trace, "compute", whole_capture(trace.gpu_ops))
    columns = columns_of(calls)
    starts, ends, sizes = (columns[name] for name in ("start_ns", "end_ns", "size_bytes"))
    groups = grouping.Groups.of(columns, NCCL_KEYS, with_absent=True)
    of_each = rows_of_each(groups.of_row)
    busy = [Intervals.of(starts[rows], ends[rows]) for rows in of_each]
    description, reduction, arguments = (
        [_nccl_known(columns[name][rows]) for rows in of_each]
        for name in ("group_description", "reduction", "arguments")
    )
    told = {
        "group_description": [_one(own) for own in description],
        "reduction": [", ".join(sorted(own)) or None for own in reduction],
        "sizes_from": [sizes_from(own) for own in arguments],
    }
    texts = {name: np.array(own, dtype=object) for name, own in told.items()}
    return sorted_table(
        {
            **{name: plain_texts(own) for name, own in groups.keys.items()},
            "group_description": texts["group_description"],
            "reduction": texts["reduction"],
            "calls": groups.counts(),
            "sizes_from": texts["sizes_from"],
            "calls_of_unknown_size": groups.sums(sizes.isna().astype(np.int64)),
            "known_size_bytes": groups.total(sizes),
            "total_ns": groups.sums(ends - starts),
            "min_ns": groups.smallest(ends - starts),
            "max_ns": groups.largest(ends - starts),
            "comm_ns": np.array([own.total_ns for own in busy]),
            "exposed_comm_ns": np.array([(own - compute).total_ns for own in busy]),
        },
        "total_ns",
    )


def nccl_across(parts: Mapping[int, pd.DataFrame], groups: Groups, call_waits: CallWaits, calls: Calls) -> Nccl:
    """The ranks' rows under each other, with the groups' sizes as matching found them."""
    table = stack(parts, tuple(Nccl.columns))
    sizes = _sizes(table, looked_at(call_waits, calls))
    return Nccl(with_columns(table, group_label=labels(groups, table), group_size=sizes))


def _sizes(table: pd.DataFrame, calls: pd.DataFrame) -> pd.api.extensions.ExtensionArray:
    """Ranks of each row's group; absent where its calls do not agree, or nothing tells."""
    if table.empty or calls.empty:
        return pd.array([None] * len(table), dtype="Int64")
    of_calls = grouping.Groups.of(calls, ["rank", *NCCL_KEYS], with_absent=True)
    sizes = of_calls.told(column_of(calls, "group_size"), _one)
    found = at_places(sizes, places_of(table, of_calls.keys, ["rank", *NCCL_KEYS]), absent=None)
    return pd.array(found.tolist(), dtype="Int64")


def _one(values: list[object]) -> object:
    """The value, where there is one."""
    return values[0] if len(values) == 1 else None


def _nccl_known(values: Any) -> list[Any]:
    """The distinct values that are not absent."""
    return [value for value in dict.fromkeys(values.tolist()) if not pd.isna(value)]
