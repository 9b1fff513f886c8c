"""A table's sums for each key, per step and over ranks: what is joined."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.diff.captures import Capture
from traceanalyzer.diff.scales import Scale
from traceanalyzer.meaning.columns import Column, Unit, stem
from traceanalyzer.model.tables import floats, with_columns

WHOLE_RUN = -1
"""Stands for a rank where a table is of the whole run."""

_BUS_BYTES = Column.size("Bytes that a bus carried: bus bandwidth · transfer.")


def compared(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Of a Result's columns those that are joined: what adds up over rows and steps, not extremes and shares."""
    made = {name: column for name, column in columns.items() if column.is_sum and column.is_compared}
    return {**made, "bus_bytes": _BUS_BYTES} if {"busbw_gbps", "transfer_ns"} <= set(columns) else made


def leading_time(sums: Mapping[str, Column]) -> str | None:
    """The time by which rows are ordered and judged; `None` for a table without."""
    return next((name for name, column in sums.items() if column.leads), None)


def leading_count(sums: Mapping[str, Column]) -> str | None:
    """The first count of a table."""
    return next((name for name, column in sums.items() if column.unit is Unit.COUNT), None)


def spread_of(time: str) -> str:
    """What the standard deviation over ranks of a time is called."""
    return f"{stem(time)}_std_ns"


def with_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """A table of the whole run has one row for all ranks."""
    return frame if "rank" in frame else frame.assign(rank=WHOLE_RUN)


def summed_sides(
    frames: list[tuple[Capture, pd.DataFrame]],
    keys: tuple[str, ...],
    sums: Mapping[str, Column],
    scale: Scale,
    by_rank: bool,
) -> list[pd.DataFrame]:
    """Both runs' `sums` of each key; a run without any row has the other's columns."""
    made = [
        _summed(frame, keys, sums, scale.divisor(capture), None if by_rank else _rank_count(capture, frame))
        for capture, frame in frames
        if len(frame)
    ]
    if len(made) == len(frames):
        return made
    return [made[0], made[0].iloc[:0]] if len(frames[0][1]) else [made[0].iloc[:0], made[0]]


def _rank_count(capture: Capture, frame: pd.DataFrame) -> int:
    """Ranks of the run, also those without a row; 1 for a table of the whole run."""
    ranks = capture.table("breakdown")
    is_of_run = "rank" not in frame or ranks is None or not set(frame["rank"]) <= set(ranks["rank"])
    return int(frame["rank"].nunique()) if is_of_run else len(ranks)  # type: ignore[arg-type]


def _summed(
    frame: pd.DataFrame, keys: tuple[str, ...], columns: Mapping[str, Column], divisor: float, ranks: int | None
) -> pd.DataFrame:
    """Sums of each key per step: of each rank, or their mean over `ranks` with the time's spread."""
    frame = _with_bus_bytes(frame)
    sums = [name for name in columns if name in frame and _is_number(frame[name])]
    # All in one array of numpy's own: of columns that may have absent values pandas adds up each by itself.
    values = [floats(frame[name]) for name in sums]
    held = pd.DataFrame(np.column_stack([np.empty((len(frame), 0)), *values]), frame.index, sums)
    by = [frame["rank"], *(plain_keys(frame[key]) for key in keys)]
    groups = held.groupby(by, dropna=False, sort=False)
    table = (_known_sums(groups, held) / divisor).reset_index()
    made = table if ranks is None else _over_ranks(table, keys, {name: columns[name] for name in sums}, ranks)
    return with_columns(made, **{name: _floating(made[name]) for name in made if name not in ("rank", *keys)})


def _known_sums(groups: Any, summed: pd.DataFrame) -> pd.DataFrame:
    """The sums of each group: a sum with an unknown part is unknown."""
    sums: pd.DataFrame = groups.sum(min_count=1)
    return sums.where(groups.count().eq(groups.size(), axis=0)) if summed.isna().to_numpy().any() else sums


def _floating(column: pd.Series) -> pd.arrays.FloatingArray:
    values = column.to_numpy()
    return pd.arrays.FloatingArray(values, np.isnan(values))


def _is_number(column: pd.Series) -> bool:
    """Whether it holds numbers, or nothing at all."""
    return pd.api.types.is_numeric_dtype(column) or bool(column.isna().all())


def _with_bus_bytes(frame: pd.DataFrame) -> pd.DataFrame:
    """With `bus_bytes`, which adds up, where there is a bus bandwidth, which does not: GB/s · ns are bytes."""
    if not {"busbw_gbps", "transfer_ns"} <= set(frame):
        return frame
    return frame.assign(bus_bytes=frame["busbw_gbps"].astype("Float64") * frame["transfer_ns"].astype("Float64"))


def _over_ranks(table: pd.DataFrame, keys: tuple[str, ...], columns: Mapping[str, Column], ranks: int) -> pd.DataFrame:
    """Mean over all ranks of the run (a rank without the row counts as 0), and the time's standard deviation."""
    sums, time = list(columns), leading_time(columns)
    held = table[[*keys, *sums]].assign(**({_SQUARES: table[time] ** 2} if time else {}))
    mean = _known_sums(held.groupby(list(keys), dropna=False, sort=False), held[sums]) / ranks
    if time:
        squares = mean.pop(_SQUARES)
        mean[spread_of(time)] = (squares - mean[time] ** 2).clip(lower=0) ** 0.5
    return mean.reset_index()


_SQUARES = "squares"


def plain_keys(column: pd.Series) -> pd.Series:
    """Keys as plain objects with `None`, so that two sources' dtypes join."""
    values = column.astype("object")
    return values.where(values.notna(), None)
