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
from traceanalyzer.analyses.grouping import Groups as Rows
from traceanalyzer.analyses.names import CollectivesColumn
from traceanalyzer.analyses.same_keys import at_places, places_of
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.job.wiring import nvlinks
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.columns import Better, Column, Written
from traceanalyzer.meaning.gpus import gpu_of
from traceanalyzer.model.tables import columns_of, floats, with_columns

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
