"""How fast copies run, from what memory, and how much of them is hidden."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, ratio, stack
from traceanalyzer.analyses.names import CopiesColumn
from traceanalyzer.analyses.time.intervals import Intervals, of_rows, union
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace, whole_capture

_KEYS = ("direction", "source_memory", "target_memory", "peer_device")


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
        "with_compute_ns": Column.time("Time in which one and compute both run."),
        "with_other_copies_ns": Column.time(
            "Time in which one and a copy of another direction (memsets left out) both run."
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        # Bytes per nanosecond are decimal gigabytes per second.
        return table.assign(
            rate_gbps=ratio(table["size_bytes"], table["total_ns"]),
            combined_gbps=ratio(table["size_bytes"], table["busy_ns"]),
        )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted copies and memsets; durations are not clipped to the window."""
    ops = trace.gpu_ops
    is_copy = ops["activity"].isin(["memcpy", "memset"]).to_numpy() & trace.counted
    if not is_copy.any():
        return pd.DataFrame()
    whole = whole_capture(ops)
    compute, comm = union(trace, "compute", whole), union(trace, "comm", whole)
    kinds = _described(ops)
    numbers = kinds[is_copy].groupby(list(_KEYS), dropna=False, sort=False, observed=True).ngroup().to_numpy()
    rows = np.flatnonzero(is_copy)
    groups = [rows[numbers == number] for number in range(numbers.max() + 1)]
    table = pd.DataFrame(
        [{**kinds.loc[own[0]].to_dict(), **_row(trace, kinds, own, compute, comm)} for own in groups]
    ).astype({"size_bytes": "Int64", "peer_device": "Int64"})
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def across(parts: Mapping[int, pd.DataFrame]) -> Copies:
    """The ranks' rows under each other."""
    return Copies(stack(parts, tuple(Copies.columns)))


def _described(ops: pd.DataFrame) -> pd.DataFrame:
    """The grouping columns of every operation, as plain objects with `None` for what is absent."""
    table = ops[list(_KEYS)].astype("object")
    table["direction"] = table["direction"].where((ops["activity"] != "memset").to_numpy(), "memset")
    return table.where(table.notna(), None)


def _row(
    trace: RankTrace, kinds: pd.DataFrame, rows: np.ndarray, compute: Intervals, comm: Intervals
) -> dict[str, object]:
    ops = trace.gpu_ops.iloc[rows]
    busy = Intervals.of(ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy())
    is_comm = (ops["kind"] == "comm").all()
    direction = kinds["direction"].to_numpy()
    others = (direction != direction[rows[0]]) & (trace.gpu_ops["activity"] == "memcpy").to_numpy()
    return {
        "copies": len(ops),
        "size_bytes": int(ops["bytes"].sum()) if ops["bytes"].notna().all() else None,
        "total_ns": int((ops["end_ns"] - ops["start_ns"]).sum()),
        "busy_ns": busy.total_ns,
        "exposed_ns": (busy - (compute if is_comm else compute | comm)).total_ns,
        "with_compute_ns": (busy & compute).total_ns,
        "with_other_copies_ns": (busy & of_rows(trace.gpu_ops, others)).total_ns,
    }
