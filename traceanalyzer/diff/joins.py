"""Tables of runs joined on their keys: new, removed, changed, the same."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses import Result
from traceanalyzer.diff import surroundings
from traceanalyzer.diff.captures import ALIKE, MOMENT, Capture, Scale, result_class
from traceanalyzer.meaning.columns import Column, Unit, stem

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


_I = re.IGNORECASE

# In this order: a flash-attention kernel's name may hold "gemm".
_FAMILIES = (
    (
        "attention backward",
        # From the start alone: tried at each character it takes 10 ms of a long name.
        re.compile(r"\A(?=.*(?:flash|fmha|sdpa|attention|attn|mha))(?=.*(?:bprop|bwd|backward|cutlassB))", _I),
    ),
    ("attention forward", re.compile(r"flash|fmha|sdpa|attention|attn_|mha_", _I)),
    ("gemm", re.compile(r"gemm|nvjet|gemv|Cijk_|triton_tem_\w*mm|cublas\w*matmul|wgmma", _I)),
)  # fmt: skip

_WRAPPER = re.compile(r"(?:vectorized_|unrolled_|legacy_)*elementwise_kernel(?:_manual_unroll|_with_index)?")
_TYPE = re.compile(
    r"const|void|unsigned|signed|float|double|half|int|long|short|char|bool|u?int\d+_t|BFloat16|Half|Float8_\w+|complex"
    r"|__nv_bfloat16|__half|T\d+|array|lambda|instance|operator|true|false|[AB]UnaryFunctor|BinaryFunctor"
)
"""Words of a C++ name that tell element types, widths, positions or which operand is a number, not what is done."""

_NAMELESS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>)::")


@lru_cache(maxsize=65_536)
def operation(name: str) -> str:
    """The operation that a kernel carries out, whatever its tile, template arguments or element type.

    Matrix products are `gemm`, attention is `attention forward` or `backward`, communication `NCCL <collective>`;
    a generated Triton kernel loses its number; of any other name stay the function's and its template arguments'
    names, without element types and the vectorised or unrolled form of PyTorch's elementwise wrapper.
    """
    if re.search(r"^(?:nccl|rccl)", name, _I):
        return f"NCCL {kinds.collective(name) or 'kernel'}"
    for family, pattern in _FAMILIES:
        if pattern.search(name):
            return family
    if name.startswith("triton_"):
        return re.sub(r"_\d+$", "", name)
    return _own_words(_WRAPPER.sub("elementwise_kernel", name)) or name


def _own_words(name: str) -> str:
    """The names in a C++ signature, each once and without namespaces, arguments, types and numbers.

    PyTorch's profiler and Nsight Systems write the same kernel differently; its names they share.
    """
    words = re.findall(r"(?:\w+::)*\b([A-Za-z_]\w*)", _head(_NAMELESS.sub("", name).removeprefix("void ")))
    return " ".join(dict.fromkeys(word for word in words if not _TYPE.fullmatch(word)))


def _head(name: str) -> str:
    """The signature without its arguments: up to the end of its template arguments, if it has any."""
    function = name.split("(", 1)[0]
    if "<" not in function:
        return function
    depth = 0
    for place, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if depth == 0 and character == ">":
            return name[: place + 1]
    return name


def pairs(base: pd.DataFrame, other: pd.DataFrame) -> list[tuple[list[str], list[str]]]:
    """Names that only one run has, put together as variants: base's names, other's names.

    Within an operation, kernels with the same number of calls are paired one to one, longest mean duration first;
    what is left on both sides becomes one group. An operation that only one run has left gives nothing. The rule is
    the same from both sides. Tables have `name`, `calls` and `total_ns`.
    """
    left, right = (_described(frame) for frame in (base, other))
    made: list[tuple[list[str], list[str]]] = []
    for family in sorted(set(left["operation"]) & set(right["operation"])):
        one, two = (frame[frame["operation"] == family] for frame in (left, right))
        matched = one.merge(two, on=["calls", "place"], suffixes=("_base", "_other"))
        made += [([a], [b]) for a, b in zip(matched["name_base"], matched["name_other"], strict=True)]
        rest = [
            sorted(set(frame["name"]) - set(matched[column]))
            for frame, column in ((one, "name_base"), (two, "name_other"))
        ]
        if all(rest):
            made.append((rest[0], rest[1]))
    return made


def _described(frame: pd.DataFrame) -> pd.DataFrame:
    """With the operation, and the place among those of the same operation and calls."""
    frame = frame.dropna(subset="name")
    calls = frame["calls"].to_numpy(dtype=np.float64)
    table = frame[["name", "calls", "total_ns"]].assign(
        operation=frame["name"].map(operation),
        mean_ns=frame["total_ns"].to_numpy(dtype=np.float64) / np.maximum(calls, 1e-9),
    )
    table = table.sort_values(["mean_ns", "name"], ascending=[False, True])
    return table.assign(place=table.groupby(["operation", "calls"]).cumcount())


# A table's sums for each key, per step and over ranks: what is joined.


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
    values = frame[sums].astype("float64")
    by = [frame["rank"], *(plain_keys(frame[key]) for key in keys)]
    groups = values.groupby(by, dropna=False, sort=False)
    table = (_known_sums(groups, values) / divisor).reset_index()
    made = table if ranks is None else _over_ranks(table, keys, {name: columns[name] for name in sums}, ranks)
    return made.astype({name: "Float64" for name in made if name not in ("rank", *keys)})


def _known_sums(groups: Any, summed: pd.DataFrame) -> pd.DataFrame:
    """The sums of each group: a sum with an unknown part is unknown."""
    sums: pd.DataFrame = groups.sum(min_count=1)
    return sums.where(groups.count().eq(groups.size(), axis=0)) if summed.isna().to_numpy().any() else sums


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
    values = table[[*keys, *sums]].assign(**({_SQUARES: table[time] ** 2} if time else {}))
    mean = _known_sums(values.groupby(list(keys), dropna=False, sort=False), values[sums]) / ranks
    if time:
        squares = mean.pop(_SQUARES)
        mean[spread_of(time)] = (squares - mean[time] ** 2).clip(lower=0) ** 0.5
    return mean.reset_index()


_SQUARES = "squares"


def plain_keys(column: pd.Series) -> pd.Series:
    """Keys as plain objects with `None`, so that two sources' dtypes join."""
    values = column.astype("object")
    return values.where(values.notna(), None)


# Tables of two runs joined on their keys: what is new, removed, changed or the same, per optimizer step.


NEW, REMOVED, CHANGED, SAME = "NEW", "REMOVED", "CHANGED", "SAME"


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
    made = [_table(name, base, other, scale, by_rank) for name in wanted if names is None or name in names]
    return [table for table in made if table is not None]


def _table(name: str, base: Capture, other: Capture, scale: Scale, by_rank: bool) -> TableDiff | None:
    source = "kernels" if name == OPERATIONS else name
    known = result_class(source)
    if known is None or known.is_of_one_run:
        return None
    keys, title = joined_by(known), known.title
    frames = [_of_compared_steps(capture, name) for capture in (base, other)]
    if name == OPERATIONS:
        keys, title = ("operation", "kind"), "Kernels by operation"
    elif not keys or any(_is_position(frame, keys, known.columns) for frame in frames):
        return None
    # What one of two profilers has no row of may be what it does not record: operators, shapes of products.
    needs_both = name == OPERATIONS or surroundings.profiler(base) != surroundings.profiler(other)
    if (any if needs_both else all)(frame.empty for frame in frames):
        return None
    keys, columns = _known_to_both(keys, *frames), compared(known.columns)
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
        return _joined(name, title, (*(("rank",) if by_rank else ()), *keys), columns, sides)
    return _split_names(_joined(name, title, keys, columns, _with_variants(sides[0], sides[1], columns)))


def _of_compared_steps(capture: Capture, name: str) -> pd.DataFrame:
    """The rows of the compared steps; of a whole capture those without a step."""
    frame = capture.tables["kernels" if name == OPERATIONS else name]
    if name == OPERATIONS:
        frame = frame[frame["activity"] == "kernel"]
        return frame.assign(operation=frame["name"].astype("str").map(operation))
    return capture.of_steps(frame)


def _known_to_both(keys: tuple[str, ...], base: pd.DataFrame, other: pd.DataFrame) -> tuple[str, ...]:
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


def _with_variants(base: pd.DataFrame, other: pd.DataFrame, columns: Mapping[str, Column]) -> list[pd.DataFrame]:
    """Both tables with kernels that are variants of each other under one name; `name` keeps each side's own."""
    only_base = base[~base["name"].isin(other["name"]) & (base["activity"] == "kernel")]
    only_other = other[~other["name"].isin(base["name"]) & (other["activity"] == "kernel")]
    found = pairs(only_base, only_other)
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
    sums = [column for column in base if column not in keys and column in other]
    frame = base.merge(other, on=list(keys), how="outer", suffixes=("_base", "_other"), indicator=True, sort=False)
    is_new, is_removed = ((frame["_merge"] == side).to_numpy() for side in ("right_only", "left_only"))
    shared = {column: known[column] for column in sums if column in known}
    time = leading_time(shared)
    columns: dict[str, np.ndarray] = {}
    for column in sums:
        one, two = (frame[f"{column}_{side}"].to_numpy("float64", na_value=np.nan) for side in ("base", "other"))
        if column in shared or (
            time and column == spread_of(time)
        ):  # a row that a run does not have took no time there
            one, two = np.where(is_new, 0.0, one), np.where(is_removed, 0.0, two)
        columns |= {f"base_{column}": one, f"other_{column}": two}
        if column in shared:
            columns[f"change_{column}"] = two - one
    for leading in (time, leading_count(shared)):
        if leading:
            columns[f"change_{leading}_pct"] = _pct(columns[f"change_{leading}"], columns[f"base_{leading}"])
    if time:
        columns |= _means_and_shares(columns, time)
    statuses = _statuses(is_new, is_removed, columns, shared, time)
    joined = frame[list(keys)].copy()
    order = _order(frame, columns[f"change_{time}"] if time else np.zeros(len(frame)), keys)
    joined["status"] = pd.Series(statuses, dtype="str")
    joined = pd.concat([joined, pd.DataFrame(columns).astype("Float64")], axis=1)
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
    columns_known: Mapping[str, Column],
    time: str | None,
) -> np.ndarray:
    changed = np.zeros(len(is_new), dtype=bool)
    limits = {name: 1e-9 for name, column in columns_known.items() if column.unit is not Unit.NS}
    for name, limit in [*limits.items(), *([(time, ALIKE)] if time else [])]:
        larger = np.maximum(columns[f"base_{name}"], columns[f"other_{name}"])
        changed |= np.abs(columns[f"change_{name}"]) > limit * larger  # not where one is absent
    return np.select([is_new, is_removed, changed], [NEW, REMOVED, CHANGED], SAME)


def _order(frame: pd.DataFrame, change: np.ndarray, keys: tuple[str, ...]) -> np.ndarray:
    """Largest difference first; at equal differences by name, so that the order of runs does not matter."""
    values = frame[list(keys)].astype("object")
    texts = values.where(values.notna(), "").astype("str")
    names = texts.agg("\0".join, axis=1).tolist() if keys and len(frame) else []
    by_name = np.array(sorted(range(len(frame)), key=names.__getitem__), dtype=np.int64)
    return by_name[np.argsort(-np.abs(change[by_name]), kind="stable")]
