"""Tables of two runs joined on their keys: what is new, removed, changed or the same, per optimizer step."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.diff import moved, renamed, splits, surroundings, variants
from traceanalyzer.diff.captures import Capture, result_class
from traceanalyzer.diff.instance_numbers import PATHS, without_instances
from traceanalyzer.diff.scales import MOMENT, Scale
from traceanalyzer.diff.sums import (
    compared,
    leading_count,
    leading_time,
    plain_keys,
    spread_of,
    summed_sides,
    with_rank,
)
from traceanalyzer.meaning.columns import Column, Unit
from traceanalyzer.model.tables import floats, with_columns

NEW, REMOVED, CHANGED, SAME = "NEW", "REMOVED", "CHANGED", "SAME"

CHANGED_PCT = 5.0
"""A row counts as changed when its time differs by more than this per cent of the larger one (so that the order of
the runs does not matter), or its calls or bytes differ at all."""


def joined_by(result: type[Result]) -> tuple[str, ...]:
    """Columns by which two runs' rows of a Result are joined, beside the rank and the step: rows are per step."""
    return tuple(key for key in (result.joined_by or result.keys) if key not in ("rank", "step"))


@dataclass(frozen=True, slots=True)
class TableDiff:
    """One table of two runs, joined.

    Attributes:
        analysis: the Result that it is of; `kernel_operations` adds kernels up by operation.
        keys: columns that name a row.
        time: column of the time that rows are ordered and judged by; `None` where a table has none.
        frame: keys, `status`, and for each sum `base_<sum>`, `other_<sum>`, `change_<sum>`; for times and counts
            `change_<sum>_pct`; with the spread over ranks of the time, and shares with their change in points.
    """

    analysis: str
    title: str
    keys: tuple[str, ...]
    time: str | None
    frame: pd.DataFrame

    def counts(self) -> dict[str, int]:
        """Rows by status."""
        found = self.frame["status"].value_counts()
        return {status: int(found.get(status, 0)) for status in (NEW, REMOVED, CHANGED, SAME)}


OPERATIONS = "kernel_operations"
"""What kernels added up by operation are called."""


def tables(
    base: Capture, other: Capture, scale: Scale, names: Collection[str] | None = None, *, by_rank: bool = False
) -> list[TableDiff]:
    """Every table (of `names`) that both captures have, and kernels added up by operation.

    Nothing when a capture's tables are not of exactly its steps.
    """
    if not (base.is_exact and other.is_exact):
        return []
    both = [name for name in base.tables if name in other.tables]
    wanted = [*both, *([OPERATIONS] if "kernels" in both else [])]
    made = [
        (_operations if name == OPERATIONS else partial(_table, name))(base, other, scale, by_rank)
        for name in wanted
        if names is None or name in names
    ]
    return [table for table in made if table is not None]


def _table(name: str, base: Capture, other: Capture, scale: Scale, by_rank: bool) -> TableDiff | None:
    known = result_class(name)
    if known is None or known.is_of_one_run:
        return None
    keys, columns = joined_by(known), compared(splits.columns_of(name, known.columns))
    frames = [_of_compared_steps(capture, name) for capture in (base, other)]
    if not keys or any(_is_position(frame, keys, known.columns) for frame in frames):
        return None
    if all(frame.empty for frame in frames) or (_are_of_two_profilers(base, other) and any(f.empty for f in frames)):
        return None
    keys = _told_by_both(keys, *frames)
    numbered = (*PATHS, "name") if name == "nvtx_projection" else PATHS
    sides = summed_sides(
        [
            (capture, with_rank(without_instances(frame, numbered)))
            for capture, frame in zip((base, other), frames, strict=True)
        ],
        keys,
        columns,
        MOMENT if known.is_of_a_moment else scale,
        by_rank,
    )
    if not any(column in columns for column in sides[0]):
        return None
    if name != "kernels" or by_rank:
        return _joined(name, known.title, (*(("rank",) if by_rank else ()), *keys), columns, sides)
    return _split_names(_joined(name, known.title, keys, columns, _with_variants(sides[0], sides[1], columns)))


def _are_of_two_profilers(base: Capture, other: Capture) -> bool:
    """What one of them has no row of may be what it does not record: operators, shapes of products."""
    return surroundings.profiler(base) != surroundings.profiler(other)


def _of_compared_steps(capture: Capture, name: str) -> pd.DataFrame:
    """The rows of the compared steps; of a whole capture those without a step. Slack is by operation."""
    frame = capture.tables[name]
    if name == "slack" and len(frame):
        return frame.assign(name=[variants.operation(str(text)) for text in frame["name"]])
    if "step" not in frame:
        return frame
    return frame[frame["step"].isin(capture.steps)] if capture.steps else frame[frame["step"].isna()]


def _told_by_both(keys: tuple[str, ...], base: pd.DataFrame, other: pd.DataFrame) -> tuple[str, ...]:
    """The keys without those that one run's format never tells (Nsight no element types) and the other's does."""
    if base.empty or other.empty:
        return keys
    return tuple(key for key in keys if base[key].notna().any() == other[key].notna().any()) or keys


def _is_position(frame: pd.DataFrame, keys: tuple[str, ...], columns: Mapping[str, Column]) -> bool:
    """Whether a key is a moment or a number of one capture, or absent: it names nothing that another run has."""
    missing = not set(keys) <= set(frame)
    return missing or any(
        columns[key].is_moment or (columns[key].unit is Unit.ID and not columns[key].is_of_all_runs) for key in keys
    )


_BETWEEN = "\x1f"
"""Stands between the names of variants while they are one row."""


def _split_names(table: TableDiff) -> TableDiff:
    """`name` is base's, `other_name` the other's where a row pairs variants."""
    parts = table.frame["name"].str.partition(_BETWEEN)
    is_pair = parts[1] == _BETWEEN
    frame = table.frame.assign(name=parts[0])
    frame.insert(1, "other_name", parts[2].where(is_pair, None))
    return replace(table, frame=frame)


def _operations(base: Capture, other: Capture, scale: Scale, by_rank: bool) -> TableDiff | None:
    sides = []
    for capture in (base, other):
        frame = capture.tables["kernels"]
        frame = frame[frame["activity"] == "kernel"]
        if frame.empty:
            return None
        own = frame.assign(operation=[variants.operation(str(name)) for name in frame["name"]])
        sides.append((capture, own))
    keys, columns = ("operation", "kind"), compared(splits.columns_of("kernels", Kernels.columns))
    summed = summed_sides(sides, keys, columns, scale, by_rank)
    rank = ("rank",) if by_rank else ()
    return _joined(OPERATIONS, "Kernels by operation", (*rank, *keys), columns, summed)


def _with_variants(base: pd.DataFrame, other: pd.DataFrame, columns: Mapping[str, Column]) -> list[pd.DataFrame]:
    """Both tables with kernels that are variants of each other under one name; `name` keeps each side's own."""
    only_base = base[~base["name"].isin(other["name"]) & (base["activity"] == "kernel")]
    only_other = other[~other["name"].isin(base["name"]) & (other["activity"] == "kernel")]
    found = variants.pairs(only_base, only_other)
    joint = {name: _BETWEEN.join(map(" + ".join, pair)) for pair in found for name in (*pair[0], *pair[1])}
    return [_renamed(frame, joint, columns) for frame in (base, other)]


def _renamed(frame: pd.DataFrame, joint: Mapping[str, str], columns: Mapping[str, Column]) -> pd.DataFrame:
    own = frame.assign(pair=[joint.get(name, name) for name in frame["name"]])
    time = leading_time(columns)
    sums = [name for name in own if name in columns or (time and name == spread_of(time))]
    groups = own.groupby(["pair", "kind", "activity"], sort=False)
    table = groups[sums].sum(min_count=1)
    return table.reset_index().rename(columns={"pair": "name"})


def _joined(
    name: str, title: str, keys: tuple[str, ...], known: Mapping[str, Column], sides: list[pd.DataFrame]
) -> TableDiff:
    base, other = (side.assign(**{key: plain_keys(side[key]) for key in keys if key != "rank"}) for side in sides)
    base, other = moved.brought_together(base, other, keys)
    base, other = renamed.called_alike(base, other, keys)
    base, other = (splits.kept_whole(name, side) for side in (base, other))
    sums = [column for column in base if column not in (*keys, moved.WHY) and column in other]
    frame = base.merge(other, on=list(keys), how="outer", suffixes=("_base", "_other"), indicator=True, sort=False)
    is_new, is_removed = ((frame["_merge"] == side).to_numpy() for side in ("right_only", "left_only"))
    held = {column: known[column] for column in sums if column in known}
    time = leading_time(held)
    # Numbers of numpy's own, NaN where they are absent: a column of pandas' takes ten times as long for each operation.
    columns: dict[str, np.ndarray] = {}
    for column in sums:
        one, two = floats(frame[f"{column}_base"]), floats(frame[f"{column}_other"])
        if column in held or (time and column == spread_of(time)):  # a row that a run does not have took no time there
            one, two = np.where(is_new, 0.0, one), np.where(is_removed, 0.0, two)
        columns |= {f"base_{column}": one, f"other_{column}": two}
        if column in held:
            columns[f"change_{column}"] = two - one
    for leading in (time, leading_count(held)):
        if leading:
            columns[f"change_{leading}_pct"] = _pct(columns[f"change_{leading}"], columns[f"base_{leading}"])
    if time:
        columns |= _means_and_shares(columns, time)
    statuses = _statuses(is_new, is_removed, columns, held, time)
    joined = frame[list(keys)].copy()
    if f"{moved.WHY}_base" in frame:
        joined[moved.WHY] = frame[f"{moved.WHY}_base"]
        statuses = np.where(joined[moved.WHY].notna(), CHANGED, statuses)
    order = _order(frame, columns[f"change_{time}"] if time else np.zeros(len(frame)), keys)
    numbers = {name: pd.arrays.FloatingArray(values, np.isnan(values)) for name, values in columns.items()}
    joined = with_columns(joined, status=pd.Series(statuses, dtype="str"), **numbers)
    return TableDiff(name, title, keys, time, joined.iloc[order].reset_index(drop=True))


def _means_and_shares(columns: Mapping[str, np.ndarray], time: str) -> dict[str, np.ndarray]:
    """Mean duration of a call, bus bandwidth, and the share of the time with its change in percentage points."""
    made = {}
    for side in ("base", "other"):
        total = columns[f"{side}_{time}"]
        if f"{side}_calls" in columns:
            made[f"{side}_mean_ns"] = _ratio(total, columns[f"{side}_calls"])
        if f"{side}_bus_bytes" in columns:
            made[f"{side}_busbw_gbps"] = _ratio(columns[f"{side}_bus_bytes"], columns[f"{side}_transfer_ns"])
        made[f"{side}_share_pct"] = _pct(total, np.full(len(total), np.nansum(total)))
    made["change_share_pct_points"] = made["other_share_pct"] - made["base_share_pct"]
    return made


def _pct(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return 100.0 * _ratio(part, whole)


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = part / np.where(whole == 0, np.nan, whole)
    return ratio


def _statuses(
    is_new: np.ndarray,
    is_removed: np.ndarray,
    columns: Mapping[str, np.ndarray],
    held: Mapping[str, Column],
    time: str | None,
) -> np.ndarray:
    changed = np.zeros(len(is_new), dtype=bool)
    limits = {name: 1e-9 for name, column in held.items() if column.unit is not Unit.NS}
    for name, limit in [*limits.items(), *([(time, CHANGED_PCT / 100)] if time else [])]:
        larger = np.maximum(columns[f"base_{name}"], columns[f"other_{name}"])
        changed |= np.abs(columns[f"change_{name}"]) > limit * larger  # not where one is absent
    return np.select([is_new, is_removed, changed], [NEW, REMOVED, CHANGED], SAME)


def _order(frame: pd.DataFrame, change: np.ndarray, keys: tuple[str, ...]) -> np.ndarray:
    """Largest difference first; at equal differences by name, so that the order of runs does not matter."""
    texts = [["" if is_absent else str(key) for key, is_absent in zip(frame[name], frame[name].isna(), strict=True)]
             for name in keys]  # fmt: skip
    names = ["\0".join(parts) for parts in zip(*texts, strict=True)]
    by_name = np.array(sorted(range(len(frame)), key=names.__getitem__), dtype=np.int64)
    return by_name[np.argsort(-np.abs(change[by_name]), kind="stable")]
