"""Collectives: calls, bytes, transfer, wait, algbw, busbw."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

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
from traceanalyzer.analyses.communication.clocks import HOST_RANKS
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.communication.waits import CallWaits, listed, looked_at
from traceanalyzer.analyses.grouping import Groups as Rows
from traceanalyzer.analyses.grouping import at_places, places_of, rows_of_each
from traceanalyzer.analyses.intervals import Intervals, union
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.job.run_info import nvlinks
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.columns import Better, Column, declared
from traceanalyzer.meaning.gpus import gpu_of
from traceanalyzer.model import RankTrace, whole_capture
from traceanalyzer.model.tables import as_objects, columns_of, plain_texts, sorted_by, table_of, whole_of, with_columns

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
    place = np.searchsorted(_CLASS_ENDS_BYTES, whole_of(calls, "size_bytes", 0), side="left")
    classes = np.array(SIZE_CLASSES, dtype=object)[np.where(calls["size_bytes"].isna(), -1, place)]
    columns = columns_of(calls) | {"size_class": classes}
    by_key = Rows.of(columns, KEYS, with_absent=True)
    split_bytes = calls["size_bytes"].where(calls["transfer_ns"].notna())
    table = by_key.table(
        group_size=by_key.first_known(columns["group_size"]),
        calls=by_key.counts(),
        total_ns=by_key.sums(columns["end_ns"] - columns["start_ns"]),
        why_not_split=by_key.of_distinct(columns["why_not_split"], listed),
        **{name: by_key.total(columns[name]) for name in ("size_bytes", "transfer_ns", "wait_ns")},
        split_bytes=by_key.total(split_bytes.array),
    )
    label = labels(groups, table)
    of_group = places_of({"group_label": label.array}, groups.table, ["group_label"])
    joined = {name: at_places(groups.table[name], of_group) for name in ("path", "transport")}
    devices = table["rank"].map(ranks.table.set_index("rank")["device_name"])
    peaks = [_peak(*row) for row in zip(devices, table["group_size"].fillna(0), joined["path"], strict=True)]
    return Collectives(with_columns(table, group_label=label, **joined, link_peak_gbps=pd.array(peaks, dtype="Int64")))


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
    compute = union(trace, "compute", whole_capture(trace.gpu_ops))
    columns = columns_of(calls)
    starts, ends, sizes = (columns[name] for name in ("start_ns", "end_ns", "size_bytes"))
    groups = Rows.of(columns, NCCL_KEYS, with_absent=True)
    busy = [Intervals.of(starts[rows], ends[rows]) for rows in rows_of_each(groups.of_row)]
    sums = {
        **{name: plain_texts(own) for name, own in groups.keys.items()},
        "group_description": as_objects(np.array(groups.of_distinct(columns["group_description"], _one), dtype=object)),
        "calls": groups.counts(),
        "size_bytes": pd.Series(groups.total(sizes)).mask(groups.any(sizes.isna())).array,
        "total_ns": groups.sums(ends - starts),
        "min_ns": groups.smallest(ends - starts),
        "max_ns": groups.largest(ends - starts),
        "comm_ns": np.array([own.total_ns for own in busy]),
        "exposed_comm_ns": np.array([(own - compute).total_ns for own in busy]),
    }
    return sorted_by(table_of(sums), "total_ns")


def nccl_across(parts: Mapping[int, pd.DataFrame], groups: Groups, call_waits: CallWaits, calls: Calls) -> Nccl:
    """The ranks' rows under each other, with the groups' sizes as matching found them, where its calls agree."""
    table = stack(parts, tuple(Nccl.columns))
    keys = ["rank", *NCCL_KEYS]
    held = looked_at(call_waits, calls)
    sizes: Iterable[object] = [None] * len(table)
    if len(held):
        of_calls = Rows.of(held, keys, with_absent=True)
        group_sizes = np.array(of_calls.of_distinct(held["group_size"].array, _one), dtype=object)
        sizes = at_places(group_sizes, places_of(table, of_calls.keys, keys), absent=None)
    return Nccl(with_columns(table, group_label=labels(groups, table), group_size=pd.array([*sizes], dtype="Int64")))


def _one(values: list[object]) -> object:
    """The value, where there is one."""
    return values[0] if len(values) == 1 else None
