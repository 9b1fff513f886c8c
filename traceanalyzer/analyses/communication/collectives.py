"""What each collective moved and how fast: transfer apart from wait, by group, size class and rank."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio
from traceanalyzer.analyses.communication.call_lists import SIZES_FROM, sizes_from
from traceanalyzer.analyses.communication.call_waits import CallWaits, listed, looked_at
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.communication.links import nvlink_peak_gbps, one_nvlink_gbps
from traceanalyzer.analyses.grouping import told_of_each
from traceanalyzer.analyses.names import CollectivesColumn
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.job.wiring import nvlinks
from traceanalyzer.meaning.columns import Better, Column, Written
from traceanalyzer.model.tables import table_of

KEYS = ("group", "group_ranks", "collective", "size_class", "rank")

_CLASS_ENDS_BYTES = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
SIZE_CLASSES = ("≤ 64 KiB", "≤ 1 MiB", "≤ 16 MiB", "≤ 256 MiB", "> 256 MiB", "unknown")
"""By the size of the full array."""

_RANKS_OF_ONE_HOST = 8


class Collectives(Result[CollectivesColumn]):
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


def across(
    _parts: Mapping[int, pd.DataFrame], call_waits: CallWaits, calls: Calls, ranks: Ranks, groups: Groups
) -> Collectives:
    """Sum the calls that are looked at: all, or those of the selected steps (matched over the whole capture)."""
    return summed(looked_at(call_waits, calls), ranks, groups)


def summed(calls: pd.DataFrame, ranks: Result, groups: Result) -> Collectives:
    """The same of some calls: rows of the table of `CallWaits`."""
    if calls.empty:
        return Collectives(calls.reindex(columns=[*Collectives.columns, "split_bytes"]))
    is_split = calls["transfer_ns"].notna()
    calls = calls.assign(
        size_class=size_classes(calls["size_bytes"]),
        is_split=is_split,
        split_bytes=calls["size_bytes"].where(is_split),
        duration_ns=calls["end_ns"] - calls["start_ns"],
    )
    by_key = calls.groupby(list(KEYS), dropna=False, observed=True)
    table = table_of(
        {
            "group_size": by_key["group_size"].first(),
            "calls": by_key.size(),
            "split_calls": by_key["is_split"].sum(),
            "total_ns": by_key["duration_ns"].sum(),
            "why_not_split": told_of_each(by_key, "why_not_split", listed),
            "sizes_from": told_of_each(by_key, "arguments", sizes_from),
            **{name: by_key[name].sum(min_count=1) for name in ("size_bytes", "transfer_ns", "wait_ns", "split_bytes")},
        }
    ).reset_index()
    is_known = table["size_class"] != SIZE_CLASSES[-1]
    table["split_bytes"] = table["split_bytes"].where(is_known)
    table = table.assign(group_label=labels(groups, table))
    by_label = groups.table.drop_duplicates("group_label").set_index("group_label")
    joined = {name: table["group_label"].map(by_label[name]).astype("object") for name in ("path", "transport")}
    return Collectives(table.assign(**joined, link_peak_gbps=_link_peaks(table, ranks, joined["path"])))


def size_classes(size_bytes: pd.Series) -> pd.Series:
    """The class of each size; `unknown` where it is absent."""
    place = np.searchsorted(_CLASS_ENDS_BYTES, size_bytes.fillna(0).to_numpy(dtype=np.int64), side="left")
    names = np.array(SIZE_CLASSES, dtype=object)
    return pd.Series(np.where(size_bytes.isna(), SIZE_CLASSES[-1], names[place]), index=size_bytes.index)


def bus_factors(collectives: pd.Series, group_sizes: pd.Series) -> pd.Series:
    """What busbw is of algbw; NA where the group's size is unknown and matters."""
    size = group_sizes.astype("Float64")
    share = (size - 1) / size
    factor = pd.Series(1.0, index=collectives.index, dtype="Float64")
    factor = factor.mask(collectives.isin(["all_gather", "reduce_scatter", "all_to_all"]), share)
    return factor.mask(collectives == "all_reduce", 2 * share)


def _link_peaks(table: pd.DataFrame, ranks: Result, paths: pd.Series) -> pd.Series:
    names = ranks.table.set_index("rank")["device_name"].astype("object")
    columns = (table["rank"].map(names), table["group_size"].fillna(0), paths)
    peaks = [_peak(name if isinstance(name, str) else None, int(size), path)
             for name, size, path in zip(*columns, strict=True)]  # fmt: skip
    return pd.Series(pd.array(peaks, dtype="Int64"), index=table.index)


def _peak(device_name: str | None, group_size: int, path: object) -> int | None:
    """GB/s of a rank's links to its group."""
    if isinstance(path, str):
        links, one = nvlinks(path), one_nvlink_gbps(device_name)
        if links is None or one is None:
            return None
        if group_size == 2:
            return links * one
    return nvlink_peak_gbps(device_name) if 0 < group_size <= _RANKS_OF_ONE_HOST else None
