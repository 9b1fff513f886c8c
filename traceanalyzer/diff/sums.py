"""A table's sums for each key, per step and over ranks: what is joined."""

import re

import pandas as pd

from traceanalyzer.diff.captures import Capture
from traceanalyzer.diff.scales import Scale

WHOLE_RUN = -1
"""Stands for a rank where a table is of the whole run."""

TIMES = ("total_ns", "gpu_own_ns", "gpu_ns", "busy_ns", "comm_ns")
COUNTS = ("calls", "copies", "kernels", "operations", "count", "launches", "calls_of_unknown_size")
_NOT_SUMS = re.compile(
    r"(?:min|max|mean|median|std|p\d+|peak|first|last|longest|shortest|start|end)_|.*_(?:start|end)_ns$"
)
_SUM = re.compile(r".*_(?:ns|bytes|flops)$")


def is_sum(column: str) -> bool:
    """Whether a column adds up over rows and steps, by its name: times, bytes, FLOPs and counts, not extremes."""
    return not _NOT_SUMS.match(column) and (column in COUNTS or bool(_SUM.match(column)))


def with_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """A table of the whole run has one row for all ranks."""
    return frame if "rank" in frame else frame.assign(rank=WHOLE_RUN)


def summed_sides(
    frames: list[tuple[Capture, pd.DataFrame]], keys: tuple[str, ...], scale: Scale, by_rank: bool
) -> list[pd.DataFrame]:
    """Both runs' sums; a run without any row has the other's columns."""
    made = [
        _summed(frame, keys, scale.divisor(capture), by_rank, _rank_count(capture, frame))
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


def _summed(frame: pd.DataFrame, keys: tuple[str, ...], divisor: float, by_rank: bool, ranks: int) -> pd.DataFrame:
    """Sums of each key per step: of each rank, or their mean over ranks with the time's spread (`_std`)."""
    frame = _with_bus_bytes(frame)
    sums = [name for name in frame if is_sum(str(name)) and _is_number(frame[name])]
    held = frame.assign(
        **{key: plain_keys(frame[key]) for key in keys}, **{name: frame[name].astype("Float64") for name in sums}
    )
    groups = held.groupby(["rank", *keys], dropna=False, sort=False)
    # A sum with an unknown part is unknown.
    table = groups[sums].sum(min_count=1).where(groups[sums].count().eq(groups.size(), axis=0))
    table = (table.astype("Float64") / divisor).reset_index()
    if by_rank:
        return table
    return _over_ranks(table, keys, sums, ranks)


def _is_number(column: pd.Series) -> bool:
    """Whether it holds numbers, or nothing at all."""
    return pd.api.types.is_numeric_dtype(column) or bool(column.isna().all())


def _with_bus_bytes(frame: pd.DataFrame) -> pd.DataFrame:
    """With `bus_bytes`, which adds up, where there is a bus bandwidth, which does not: GB/s · ns are bytes."""
    if not {"busbw_gbps", "transfer_ns"} <= set(frame):
        return frame
    return frame.assign(bus_bytes=frame["busbw_gbps"].astype("Float64") * frame["transfer_ns"].astype("Float64"))


def _over_ranks(table: pd.DataFrame, keys: tuple[str, ...], sums: list[str], ranks: int) -> pd.DataFrame:
    """Mean over all ranks of the run (a rank without the row counts as 0), and the time's standard deviation."""
    groups = table.groupby(list(keys), dropna=False, sort=False)
    known = groups[sums].count().eq(groups.size(), axis=0)
    mean = groups[sums].sum().where(known) / ranks
    time = next((name for name in TIMES if name in sums), None)
    if time:
        squares = (table[time] ** 2).groupby([table[key] for key in keys], dropna=False, sort=False).sum()
        spread = (squares / ranks - mean[time] ** 2).clip(lower=0) ** 0.5
        mean[f"{time.removesuffix('_ns')}_std_ns"] = spread.where(known[time])
    return mean.reset_index()


def plain_keys(column: pd.Series) -> pd.Series:
    """Keys as plain objects with `None`, so that two sources' dtypes join."""
    values = column.astype("object")
    return values.where(values.notna(), None)
