"""Tables of runs joined on their keys: new, removed, changed, the same."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.kernels import category
from traceanalyzer.analyses.replay.changes import RUN_TO_RUN
from traceanalyzer.diff.captures import WHOLE_RUN, Capture, Scale, known_sums, profiler, result_class
from traceanalyzer.meaning.columns import Column, Unit, stem
from traceanalyzer.meaning.names import short_name

# Names of ranges and modules without the numbers of their instances: what two runs call alike.


_AFTER_MARK = re.compile(r"(?<=[.#])\d+(?![\w])")

_AFTER_WORD = re.compile(
    r"\b(step|iteration|iter|epoch|micro_?step|micro_?batch|layer|block|stage)([ _])\d+\b", re.IGNORECASE
)

_OF_CLASS = re.compile(r"(?:(?<=/)|^)(?:FSDP(?=[A-Z]))?([A-Z]\w*)_\d+(?=/|$)")
"""A module as PyTorch writes it, its class and number; FSDP puts its name before the class."""

_IN_BRACKETS = re.compile(r"(?<=\()\d+(?=\))")

_WRAPPERS = re.compile(
    r"(?:(?<=/)|^)(?:DistributedDataParallel|FullyShardedDataParallel|OptimizedModule)(?:_\*|\.forward)/"
)
"""Parts of paths that wrap a model and are left out where something follows."""

PATHS = ("path", "range")
"""Keys that hold ranges or modules in every table."""


def without_instances(frame: pd.DataFrame, keys: tuple[str, ...]) -> pd.DataFrame:
    """The table with `blocks.9` as `blocks.*`, `ProfilerStep#2` as `ProfilerStep#*`, `step_3` as `step_*`."""
    present = [key for key in keys if key in frame]
    return frame.assign(**{key: frame[key].astype("object").map(plain, na_action="ignore") for key in present})


@lru_cache(maxsize=65_536)
def plain(name: str) -> str:
    """One name without the numbers of its instances, and without what wraps the model."""
    numbered = _IN_BRACKETS.sub("*", _OF_CLASS.sub(r"\1_*", name))
    return _WRAPPERS.sub("", _AFTER_WORD.sub(r"\1\2*", _AFTER_MARK.sub("*", numbered)))


# Which kernels of two runs are variants of one operation: another tile, template or compiled version of it.


_ELEMENT_TYPE = re.compile(r"(?: →)? (?:[bfiu][fp]?\d+|bool)\b")

_ATTENTION = re.compile("attention (?:forward|backward)")


@lru_cache(maxsize=65_536)
def operation(name: str) -> str:
    """The operation that a kernel carries out, whatever its tile, template arguments or element type.

    Matrix products are `gemm`, attention is `attention forward` or `backward`; any other is its short name. PyTorch's
    profiler and Nsight Systems write the same kernel differently; its short name they share.
    """
    family, short = category(name, "compute", None), short_name(name)
    if family in ("gemm", "convolution"):
        return family
    attention = _ATTENTION.search(short)
    return attention[0] if attention else _ELEMENT_TYPE.sub("", short)


def pairs(base: pd.DataFrame, other: pd.DataFrame) -> list[tuple[list[str], list[str]]]:
    """Names that only one run has, put together as variants: base's names, other's names.

    Within an operation, kernels with the same number of calls are paired one to one, longest mean duration first;
    what is left on both sides becomes one group. An operation that only one run has left gives nothing. The rule is
    the same from both sides. Tables have `name`, `calls` and `total_ns`.
    """
    left, right = (_described(frame) for frame in (base, other))
    matched = left.merge(right, on=["operation", "calls", "place"], suffixes=("_base", "_other"))
    made = [([one], [two]) for one, two in zip(matched["name_base"], matched["name_other"], strict=True)]
    rest = [
        frame[~frame["name"].isin(matched[name])].groupby("operation")["name"].agg(sorted)
        for frame, name in ((left, "name_base"), (right, "name_other"))
    ]
    both = pd.concat(rest, axis=1, join="inner")
    return [*made, *both.itertuples(index=False, name=None)]


def _described(frame: pd.DataFrame) -> pd.DataFrame:
    """With the operation, and the place among those of the same operation and calls, longest mean duration first."""
    frame = frame.dropna(subset="name")[["name", "calls", "total_ns"]]
    calls = frame["calls"].to_numpy(dtype=np.float64)
    mean_ns = frame["total_ns"].to_numpy(dtype=np.float64) / np.maximum(calls, 1e-9)
    table = frame.assign(operation=frame["name"].map(operation), mean_ns=mean_ns)
    table = table.sort_values(["mean_ns", "name"], ascending=[False, True])
    return table.assign(place=table.groupby(["operation", "calls"]).cumcount())


# A table's sums for each key, per step and over ranks: what is joined.


_BUS_BYTES = Column.size("Bytes that a bus carried: bus bandwidth · transfer.")

_MEAN_OF_SQUARES = "mean_of_squares"


def _compared(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Of a Result's columns those that are joined: what adds up over rows and steps, not extremes and shares."""
    made = {name: column for name, column in columns.items() if column.is_sum and column.is_compared}
    return {**made, "bus_bytes": _BUS_BYTES} if {"busbw_gbps", "transfer_ns"} <= set(columns) else made


def spread_of(time: str) -> str:
    """What the standard deviation over ranks of a time is called."""
    return f"{stem(time)}_std_ns"


def with_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """A table of the whole run has one row for all ranks."""
    return frame if "rank" in frame else frame.assign(rank=WHOLE_RUN)


def ranks_of(capture: Capture, frame: pd.DataFrame) -> list[int]:
    """All ranks of the capture, also those without a row; of a table of the whole run its one row."""
    ranks, own = capture.table("breakdown"), list(dict.fromkeys(frame["rank"]))
    return sorted(ranks["rank"]) if ranks is not None and {*own} <= {*ranks["rank"]} else own


def _summed(
    frame: pd.DataFrame, keys: tuple[str, ...], columns: Mapping[str, Column], divisor: float, ranks: int
) -> pd.DataFrame:
    """Sums of each key per step: their mean over `ranks` with the time's standard deviation.

    A rank without the row counts as 0.
    """
    if {"busbw_gbps", "transfer_ns"} <= set(frame):  # GB/s · ns are bytes, which add up
        frame = frame.assign(bus_bytes=frame["busbw_gbps"].astype("Float64") * frame["transfer_ns"].astype("Float64"))
    sums = [name for name in columns if name in frame and (is_numeric_dtype(frame[name]) or frame[name].isna().all())]
    values = frame[["rank"]].assign(
        **{key: _plain_keys(frame[key]) for key in keys}, **{name: frame[name].astype("float64") for name in sums}
    )
    table = known_sums(values.groupby(["rank", *keys], dropna=False, sort=False), sums) / divisor
    time = leading(columns, sums)
    if time:
        table[_MEAN_OF_SQUARES] = table[time] ** 2
        sums = [*sums, _MEAN_OF_SQUARES]
    over_ranks = table.reset_index().groupby(list(keys), dropna=False, sort=False)
    table = (known_sums(over_ranks, sums) / ranks).reset_index()
    if time:
        table[spread_of(time)] = (table.pop(_MEAN_OF_SQUARES) - table[time] ** 2).clip(lower=0) ** 0.5
    return table.astype({name: "Float64" for name in table if name not in keys})


def leading(columns: Mapping[str, Column], names: Iterable[str]) -> str | None:
    """Of these columns the time by which rows are ordered and judged; `None` for a table without."""
    return next((name for name in names if name in columns and columns[name].leads), None)


def _plain_keys(column: pd.Series) -> pd.Series:
    """Keys as plain objects with `None`, so that two sources' dtypes join."""
    values = column.astype("object")
    return values.where(values.notna(), None)


# Tables of two runs joined on their keys: what is new, removed, changed or the same, per optimizer step.


NEW, REMOVED, CHANGED, SAME = "NEW", "REMOVED", "CHANGED", "SAME"

OPERATIONS = "kernel_operations"
"""What kernels added up by operation are called."""


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
        is_of_ranks: whether values are means over ranks; else the table is of the whole run.
    """

    analysis: str
    title: str
    keys: tuple[str, ...]
    time: str | None
    frame: pd.DataFrame
    is_of_ranks: bool = True

    def counts(self) -> dict[str, int]:
        """Rows by status."""
        found = self.frame["status"].value_counts()
        return {status: int(found.get(status, 0)) for status in (NEW, REMOVED, CHANGED, SAME)}

    @property
    def differing(self) -> int:
        """How many rows are new, removed or changed."""
        return int((self.frame["status"] != SAME).sum())


def tables(base: Capture, other: Capture, scale: Scale) -> list[TableDiff]:
    """Every table that both captures have, and kernels added up by operation.

    Nothing when a capture's tables are not of exactly its steps.
    """
    if not (base.is_exact and other.is_exact):
        return []
    both = [name for name in base.tables if name in other.tables]
    wanted = [*both, *([OPERATIONS] if "kernels" in both else [])]
    made = [_table(name, (base, other), scale) for name in wanted]
    return [table for table in made if table is not None]


def _table(name: str, captures: tuple[Capture, Capture], scale: Scale) -> TableDiff | None:
    known = result_class("kernels" if name == OPERATIONS else name)
    if known is None or known.is_of_one_run:
        return None
    keys, title = joined_by(known), known.title
    frames = [_of_compared_steps(capture, name) for capture in captures]
    if name == OPERATIONS:
        keys, title = ("operation", "kind"), "Kernels by operation"
    elif not keys or any(_is_position(frame, keys, known.columns) for frame in frames):
        return None
    # What one of two profilers has no row of may be what it does not record: operators, shapes of products.
    needs_both = name == OPERATIONS or len({profiler(capture) for capture in captures}) > 1
    if (any if needs_both else all)(frame.empty for frame in frames):
        return None
    # Without keys that one run's format never tells (Nsight no element types) and the other's does.
    if not any(frame.empty for frame in frames):
        keys = tuple(key for key in keys if len({bool(frame[key].notna().any()) for frame in frames}) == 1) or keys
    columns, numbered = _compared(known.columns), (*PATHS, "name") if name == "nvtx_projection" else PATHS
    is_of_ranks = any("rank" in frame for frame in frames)
    sides = []
    for capture, frame in zip(captures, frames, strict=True):
        own = with_rank(without_instances(frame, numbered))
        divisor = 1.0 if known.is_of_a_moment else scale.divisor(capture)
        sides.append(_summed(own, keys, columns, divisor, len(ranks_of(capture, own))))
    base, other = sides
    if not any(column in columns for column in base):
        return None
    if name != "kernels":
        return _joined(name, title, keys, columns, base, other, is_of_ranks)
    base, other = _with_variants(base, other)
    table = _joined(name, title, keys, columns, base, other, is_of_ranks)
    # `name` is base's, `other_name` the other's where a row pairs variants.
    parts = table.frame["name"].str.partition(_BETWEEN)
    frame = table.frame.assign(name=parts[0])
    frame.insert(1, "other_name", parts[2].where(parts[1] == _BETWEEN, None))
    return replace(table, frame=frame)


def _of_compared_steps(capture: Capture, name: str) -> pd.DataFrame:
    """The rows of the compared steps; of a whole capture those without a step."""
    if name != OPERATIONS:
        return capture.of_steps(capture.tables[name])
    frame = capture.tables["kernels"]
    frame = frame[frame["activity"] == "kernel"]
    return frame.assign(operation=frame["name"].astype("str").map(operation))


def _is_position(frame: pd.DataFrame, keys: tuple[str, ...], columns: Mapping[str, Column]) -> bool:
    """Whether a key is a moment or a number of one capture, or absent: it names nothing that another run has."""
    missing = not set(keys) <= set(frame)
    return missing or any(
        columns[key].is_moment or (columns[key].unit is Unit.ID and not columns[key].is_of_all_runs) for key in keys
    )


_BETWEEN = "\x1f"
"""Stands between the names of variants while they are one row."""


def _with_variants(base: pd.DataFrame, other: pd.DataFrame) -> list[pd.DataFrame]:
    """Both tables with kernels that are variants of each other under one name that keeps each side's own."""
    only_base = base[~base["name"].isin(other["name"]) & (base["activity"] == "kernel")]
    only_other = other[~other["name"].isin(base["name"]) & (other["activity"] == "kernel")]
    found = pairs(only_base, only_other)
    joint = {name: _BETWEEN.join(map(" + ".join, pair)) for pair in found for name in (*pair[0], *pair[1])}
    by = ["name", "kind", "activity"]
    return [
        frame.assign(name=frame["name"].map(lambda name: joint.get(name, name)))
        .groupby(by, sort=False)
        .sum(min_count=1)
        .reset_index()
        for frame in (base, other)
    ]


def _joined(
    name: str,
    title: str,
    keys: tuple[str, ...],
    known: Mapping[str, Column],
    base: pd.DataFrame,
    other: pd.DataFrame,
    is_of_ranks: bool,
) -> TableDiff:
    sums = [column for column in base if column not in keys and column in other]
    frame = base.merge(other, on=list(keys), how="outer", suffixes=("_base", "_other"), indicator=True, sort=False)
    is_new, is_removed = ((frame["_merge"] == side).to_numpy() for side in ("right_only", "left_only"))
    time = leading(known, sums)
    count = next((name for name in known if name in sums and known[name].unit is Unit.COUNT), None)
    columns: dict[str, np.ndarray] = {}
    changed = np.zeros(len(frame), dtype=bool)
    for column in sums:
        one, two = (frame[f"{column}_{side}"].to_numpy("float64", na_value=np.nan) for side in ("base", "other"))
        # A row that a run does not have took no time there.
        one, two = np.where(is_new, 0.0, one), np.where(is_removed, 0.0, two)
        columns |= {f"base_{column}": one, f"other_{column}": two}
        if column in known:
            columns[f"change_{column}"] = two - one
            if column == time or known[column].unit is not Unit.NS:
                limit = RUN_TO_RUN if column == time else 1e-9
                changed |= np.abs(two - one) > limit * np.maximum(one, two)  # not where one is absent
    for leader in filter(None, (time, count)):
        columns[f"change_{leader}_pct"] = 100 * _ratio(columns[f"change_{leader}"], columns[f"base_{leader}"])
    if time:
        columns |= _means_and_shares(columns, time)
    order = _order(frame[list(keys)], columns[f"change_{time}"] if time else np.zeros(len(frame)))
    status = pd.Series(np.select([is_new, is_removed, changed], [NEW, REMOVED, CHANGED], SAME), dtype="str")
    joined = pd.concat([frame[list(keys)].assign(status=status), pd.DataFrame(columns).astype("Float64")], axis=1)
    return TableDiff(name, title, keys, time, joined.iloc[order].reset_index(drop=True), is_of_ranks)


def _means_and_shares(columns: Mapping[str, np.ndarray], time: str) -> dict[str, np.ndarray]:
    """Mean duration of a call, bus bandwidth, and the share of the time with its change in percentage points."""
    made = {}
    for side in ("base", "other"):
        total = columns[f"{side}_{time}"]
        if f"{side}_calls" in columns:
            made[f"{side}_mean_ns"] = _ratio(total, columns[f"{side}_calls"])
        if f"{side}_bus_bytes" in columns:
            made[f"{side}_busbw_gbps"] = _ratio(columns[f"{side}_bus_bytes"], columns[f"{side}_transfer_ns"])
        made[f"{side}_share_pct"] = 100 * _ratio(total, np.full(len(total), np.nansum(total)))
    made["change_share_pct_points"] = made["other_share_pct"] - made["base_share_pct"]
    return made


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = part / np.where(whole == 0, np.nan, whole)
    return ratio


def _order(keys: pd.DataFrame, change: np.ndarray) -> np.ndarray:
    """Largest difference first; at equal differences by name, so that the order of runs does not matter."""
    texts = keys.astype("object").where(keys.notna(), "").astype("str")
    return np.lexsort([*(texts[key].to_numpy("str") for key in reversed(keys.columns)), -np.abs(change)])
