"""How fast copies run, from what memory, and how much of them is hidden."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import Result, ratio, stack
from traceanalyzer.analyses.grouping import Groups, rows_of_each
from traceanalyzer.analyses.names import CopiesColumn
from traceanalyzer.analyses.streams.copying_hosts import host_times
from traceanalyzer.analyses.streams.memory_ops import is_copy
from traceanalyzer.analyses.time.intervals import Intervals, unions
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named, sorted_table, texts_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of

_KEYS = ("direction", "source_memory", "target_memory", "peer_device")

_SUMS = ("copies", "size_bytes", "total_ns", "busy_ns", "exposed_ns", "with_compute_ns", "with_other_copies_ns")


class Copies(Result[CopiesColumn]):
    """One row for each rank, direction, pair of memories and peer; most time first within a rank."""

    title: ClassVar[str] = "Copies"
    keys: ClassVar[tuple[str, ...]] = ("rank", *_KEYS)
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "direction": Column.text(
            "HtoD, DtoH, DtoD, PtoP (between GPUs), HtoH; memset; absent when the trace does not say."
        ),
        "source_memory": Column.text("pinned, pageable, device, managed."),
        "target_memory": Column.text("The same for the target."),
        "peer_device": Column.ident("The other GPU of a PtoP copy.", is_of_all_runs=True),
        "copies": Column.count("Number."),
        "size_bytes": Column.size("Bytes; absent when one does not say.", is_aside=True),
        "total_ns": Column.time("Sum of their durations.", leads=True),
        "busy_ns": Column.time("Time in which at least one runs."),
        "rate_gbps": Column.rate("Bytes / sum of durations, in decimal GB/s: what one copy gets."),
        "combined_gbps": Column.rate("Bytes / time in which at least one runs: what the link carries."),
        "exposed_ns": Column.time(
            "Time in which one runs but no compute (and, for copies that are no communication, no communication)."
        ),
        "host_ns": Column.time(
            "Time of the host in making them: of each the outermost operator that launches it alone, else the call; "
            "absent where it is not known which call launched one.",
            is_secondary=True,
        ),
        "with_compute_ns": Column.time("Time in which one and compute both run."),
        "with_other_copies_ns": Column.time(
            "Time in which one and a copy of another direction (memsets left out) both run."
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        # Bytes per nanosecond are decimal gigabytes per second.
        return self._with(
            table,
            {
                "rate_gbps": ratio(table["size_bytes"], table["total_ns"]),
                "combined_gbps": ratio(table["size_bytes"], table["busy_ns"]),
            },
        )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted copies and memsets; durations are not clipped to the window."""
    ops = trace.gpu_ops
    rows = np.flatnonzero(is_copy(ops) & trace.counted)
    if not len(rows):
        return pd.DataFrame()
    directions = _directions(ops)
    described = {name: column_of(ops, name)[rows] for name in _KEYS} | {"direction": directions[rows]}
    groups = Groups.of(described, _KEYS, by_appearance=True, with_absent=True)
    every = _Every(unions(trace), ops, directions.codes, rows_named(ops, "activity", "memcpy"))
    texts = {name: texts_of(groups.keys[name]) for name in _KEYS[:-1]}
    sums = _sums(every, [rows[own] for own in rows_of_each(groups.of_row)])
    of_hosts = host_times(trace, rows)
    hosts = pd.arrays.IntegerArray(groups.sums(of_hosts), groups.sums(of_hosts == NONE) > 0)
    return sorted_table({**texts, _KEYS[-1]: groups.keys[_KEYS[-1]], **sums, "host_ns": hosts}, "total_ns")


def across(parts: Mapping[int, pd.DataFrame]) -> Copies:
    """The ranks' rows under each other."""
    return Copies(stack(parts, tuple(Copies.columns)))


def _directions(ops: pd.DataFrame) -> pd.Categorical:
    """Direction of every operation, `memset` for a memset."""
    direction: Any = column_of(ops, "direction")
    codes = np.where(rows_named(ops, "activity", "memset"), len(direction.categories), direction.codes)
    return pd.Categorical.from_codes(codes, categories=[*direction.categories, "memset"])


class _Every(Struct, frozen=True):
    """All of a rank's operations: unions of their kinds, `direction` codes, and which are copies."""

    unions: Mapping[str, Intervals]
    ops: pd.DataFrame
    direction: np.ndarray
    is_copy: np.ndarray


def _sums(every: _Every, groups: list[np.ndarray]) -> dict[str, Any]:
    """Columns of sums, given the rows of each group's operations."""
    starts, ends = (array_of(every.ops, name) for name in ("start_ns", "end_ns"))
    size, is_comm = column_of(every.ops, "bytes"), rows_named(every.ops, "kind", "comm")
    compute, comm = every.unions["compute"], every.unions["comm"]
    columns: dict[str, list[int | None]] = {name: [] for name in _SUMS}
    for rows in groups:
        busy = Intervals.of(starts[rows], ends[rows])
        others = (every.direction != every.direction[rows[0]]) & every.is_copy
        hidden_by = compute if is_comm[rows].all() else compute | comm
        sums = (
            len(rows), None if size[rows].isna().any() else int(size[rows].sum()),
            int((ends[rows] - starts[rows]).sum()), busy.total_ns, (busy - hidden_by).total_ns,
            (busy & compute).total_ns, (busy & Intervals.of(starts[others], ends[others])).total_ns,
        )  # fmt: skip
        for name, value in zip(_SUMS, sums, strict=True):
            columns[name].append(value)
    return {
        name: pd.array(own, dtype="Int64") if name == "size_bytes" else np.array(own) for name, own in columns.items()
    }
