"""Transfer and wait of communication in tables that tell only its time: of kernels, operators, collectives, phases."""

from collections.abc import Mapping

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.phases.comm_phases import without_numbers
from traceanalyzer.meaning.columns import Better, Column

COLUMNS: Mapping[str, Column] = {
    "transfer_ns": Column.time("Sum of its calls' transfers; absent unless those of all its time are known."),
    "wait_ns": Column.time("Sum of its calls' waits; absent as transfer is.", better=Better.LESS),
}

_KEYS: Mapping[str, tuple[str, ...]] = {
    "kernels": ("name", "activity"),
    "operators": ("operator",),
    "nccl": ("group", "collective", "dtype"),
    "comm_phases": ("phase", "range", "group", "collective"),
    "categories": ("category",),
}
"""What of a communication call names its row in each table."""

_TIMES = {
    "kernels": "total_ns", "kernel_operations": "total_ns", "operators": "gpu_own_ns", "nccl": "total_ns",
    "comm_phases": "total_ns", "categories": "gpu_ns",
}  # fmt: skip
"""The time that transfer and wait make up."""


def columns_of(analysis: str, known: Mapping[str, Column]) -> Mapping[str, Column]:
    """The columns of a table of a capture: its Result's, and in these tables transfer and wait."""
    return {**known, **COLUMNS} if analysis in _KEYS else known


def with_splits(tables: Mapping[str, pd.DataFrame], results: Results) -> dict[str, pd.DataFrame]:
    """The tables, those by kernel, operator and collective with `COLUMNS`, which add up to the row's GPU time.

    Absent where they cannot be told: a row that is not communication alone, a call of it without a known transfer, or
    operations that were not kept.
    """
    calls = _calls(results)
    return {
        name: _with_split(frame, calls, _KEYS[name], _TIMES[name]) if name in _KEYS else frame
        for name, frame in tables.items()
    }


def _told_apart(table: pd.DataFrame, time: str) -> pd.DataFrame:
    """The table without transfers and waits of rows in which they do not make up the time."""
    parts = table[list(COLUMNS)].astype("Float64")
    is_whole = ((parts.sum(axis=1, skipna=False) - table[time]).abs() <= 1e-9 * table[time]).fillna(value=False)
    return table.assign(**{name: parts[name].where(is_whole) for name in COLUMNS})


def kept_whole(analysis: str, side: pd.DataFrame) -> pd.DataFrame:
    """One side of a joined table after rows were put together: those of which a part is not told are not told."""
    is_split = analysis in _TIMES and set(COLUMNS) <= set(side)
    return _told_apart(side, _TIMES[analysis]) if is_split else side


def _calls(results: Results) -> pd.DataFrame:
    """Each call with its transfer and wait, and the kernel and operator where its operation was kept."""
    needed = ("calls", "call_waits", "timeline")
    if any(name not in results or not len(results[name]) for name in needed):
        return pd.DataFrame()
    calls, waits, operations = (results[name].table for name in needed)
    own = operations.loc[operations["call"].notna(), ["rank", "call", "name", "activity", "operator"]]
    keys = ["rank", "call"]
    split = calls[[*keys, *_KEYS["nccl"]]].merge(waits[[*keys, *COLUMNS]], on=keys, how="left")
    split = split.merge(own, on=keys, how="left").assign(category="communication")
    if "call_phases" not in results or not len(results["call_phases"]):
        return split
    phases = results["call_phases"].table[[*keys, "phase", "range"]]
    return split.merge(phases.assign(range=without_numbers(phases["range"])), on=keys, how="left")


def _with_split(frame: pd.DataFrame, calls: pd.DataFrame, keys: tuple[str, ...], time: str) -> pd.DataFrame:
    if frame.empty or calls.empty or not set(keys) <= set(calls):
        return frame.assign(**dict.fromkeys(COLUMNS, pd.Series(pd.NA, index=frame.index, dtype="Int64")))
    groups = calls.assign(**_plain(calls, keys)).groupby(["rank", *keys])
    names = list(COLUMNS)
    sums = groups[names].sum().astype("Int64").where(groups[names].count().eq(groups.size(), axis=0))
    wanted = pd.MultiIndex.from_frame(frame[["rank"]].assign(**_plain(frame, keys)))
    found = sums.reindex(wanted).set_axis(frame.index)
    return _told_apart(frame.assign(**found), time)


def _plain(table: pd.DataFrame, keys: tuple[str, ...]) -> dict[str, pd.Series]:
    """The keys as texts, so that what is absent in both meets."""
    return {key: table[key].astype("object").where(table[key].notna(), "").astype("str") for key in keys}
