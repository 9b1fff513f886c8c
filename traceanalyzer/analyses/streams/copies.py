"""Copies and memsets: how fast, from which memory, how much of them is hidden, which block the CPU."""

import re

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result
from traceanalyzer.analyses.grouping import Groups, rows_of_each
from traceanalyzer.analyses.time.intervals import Intervals, unions
from traceanalyzer.meaning.columns import Column, Written, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import columns_of as columns_of_table
from traceanalyzer.model.tables import (
    lengths_of,
    mask_of,
    rows_named,
    sorted_by,
    table_of,
    texts_of,
    with_columns,
)


def is_copy(ops: pd.DataFrame) -> np.ndarray:
    """Mask of copies and memsets."""
    return rows_named(ops, "activity", "memcpy", "memset")


def operations(ops: pd.DataFrame) -> np.ndarray:
    """Direction of each copy, `memset` for a memset, `unknown` for a copy that does not say."""
    names = texts_of(ops["direction"].array)
    names[pd.isna(names)] = "unknown"
    names[rows_named(ops, "activity", "memset")] = "memset"
    return names


# How fast copies run, from what memory, and how much of them is hidden.


_KEYS = ("direction", "source_memory", "target_memory", "peer_device")


class Copies(Result):
    """One row for each rank, direction, pair of memories and peer; most time first within a rank."""

    title = "Copies"
    keys = ("rank", *_KEYS)
    derived = {"rate_gbps": "size_bytes / total_ns"}
    columns = declared(
        rank=RANK,
        direction="HtoD, DtoH, DtoD, PtoP (between GPUs), HtoH; memset; absent when the trace does not say.",
        source_memory="pinned, pageable, device, managed.",
        target_memory="The same for the target.",
        peer_device=Column.ident("The other GPU of a PtoP copy.", is_of_all_runs=True),
        copies=Column.count("Number."),
        size_bytes="Bytes; absent when one does not say.",
        total_ns=Column.time("Sum of their durations.", leads=True),
        busy_ns="Time in which at least one runs.",
        rate_gbps="Bytes / sum of durations, in decimal GB/s: what one copy gets.",
        exposed_ns=(
            "Time in which one runs but no compute (and, for copies that are no communication, no communication)."
        ),
        with_other_copies_ns="Time in which one and a copy of another direction (memsets left out) both run.",
    )


def copies_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted copies and memsets; durations are not clipped to the window."""
    rows = np.flatnonzero(is_copy(trace.gpu_ops) & trace.counted)
    if not len(rows):
        return pd.DataFrame()
    ops, of_kind = columns_of_table(trace.gpu_ops), unions(trace)
    direction = ops["direction"].codes.astype(np.int64)
    direction[rows_named(trace.gpu_ops, "activity", "memset")] = len(ops["direction"].categories)
    copied = np.flatnonzero(rows_named(trace.gpu_ops, "activity", "memcpy"))
    names = np.array([*ops["direction"].categories, "memset", None], dtype=object)[direction[rows]]
    described = {name: ops[name][rows] for name in _KEYS} | {"direction": pd.Categorical(names)}
    groups = Groups.of(described, _KEYS, by_appearance=True, with_absent=True)
    sums = []
    for own in (rows[each] for each in rows_of_each(groups.of_row)):
        starts, ends, size = ops["start_ns"][own], ops["end_ns"][own], ops["bytes"][own]
        busy, others = Intervals.of(starts, ends), copied[direction[copied] != direction[own[0]]]
        is_comm = rows_named(trace.gpu_ops, "kind", "comm")[own].all()
        hidden_by = of_kind["compute"] if is_comm else of_kind["compute"] | of_kind["comm"]
        sums.append(
            {
                "copies": len(own),
                "size_bytes": None if size.isna().any() else int(size.sum()),
                "total_ns": int((ends - starts).sum()),
                "busy_ns": busy.total_ns,
                "exposed_ns": (busy - hidden_by).total_ns,
                "with_other_copies_ns": (busy & Intervals.of(ops["start_ns"][others], ops["end_ns"][others])).total_ns,
            }
        )
    keys = {name: own if name == "peer_device" else texts_of(own) for name, own in groups.keys.items()}
    table = with_columns(table_of(keys), **pd.DataFrame(sums).astype({"size_bytes": "Int64"}))
    return sorted_by(table, "total_ns")


# Which copies and memsets make the host wait: synchronous calls, and asynchronous ones of pageable memory.


_SYNC_COPIES_KEYS = ["problem", "api_call", "operation", "source_memory", "target_memory"]


class SyncCopies(Result):
    """One row for each rank, problem, API call and kind of copy, longest host time first within a rank."""

    title = "Copies that block the host"
    keys = ("rank", *_SYNC_COPIES_KEYS)
    columns = declared(
        rank=RANK,
        problem=(
            "`synchronous`: the call returns when the copy is done. `pageable`: an asynchronous copy from or to "
            "pageable memory, which CUDA stages through a buffer and may make the host wait for."
        ),
        api_call=Column.text("Function that launched them."),
        operation=Column.text("Direction of the copies, or memset.", written=Written.KERNEL),
        source_memory="pinned, pageable, device or managed.",
        target_memory="The same of the other end.",
        calls="Operations.",
        total_bytes="Sum of their sizes.",
        gpu_ns=Column.time("Sum of their durations on the GPU.", leads=True),
        host_ns="Sum of the durations of the API calls that launched them.",
    )


def sync_copies_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's counted copies and memsets whose launch is known to block, or may."""
    launch = trace.launch
    held = np.flatnonzero(trace.counted & (launch != NONE) & is_copy(trace.gpu_ops))
    problem = _problems(trace, held)
    held, problem = held[problem != ""], problem[problem != ""]
    if not len(held):
        return pd.DataFrame()
    ops, calls = trace.gpu_ops, launch[held]
    keys = {
        "problem": problem,
        "api_call": trace.api_calls["name"].array[calls].astype("object"),
        "operation": operations(ops)[held],
        "source_memory": ops["source_memory"].array[held].astype("object"),
        "target_memory": ops["target_memory"].array[held].astype("object"),
    }
    groups = Groups.of(keys, _SYNC_COPIES_KEYS, with_absent=True)
    sums = {
        "gpu_ns": groups.sums(lengths_of(ops)[held]),
        "host_ns": groups.sums(lengths_of(trace.api_calls)[calls]),
        "calls": groups.counts(),
        "total_bytes": groups.total(ops["bytes"].array[held]),
    }
    return sorted_by(table_of({**groups.keys, **sums}), "host_ns")


def _problems(trace: RankTrace, rows: np.ndarray) -> np.ndarray:
    """`synchronous` for a memcpy or memset function without Async, else `pageable` where an end is; else empty."""
    calls = trace.launch[rows]
    # A graph's copies are launched by neither.
    names = trace.api_calls["name"].array
    is_own, is_async = (mask_of(names, pattern.search)[calls] for pattern in (_OWN, _ASYNC))
    ends = (rows_named(trace.gpu_ops, end, "pageable")[rows] for end in ("source_memory", "target_memory"))
    cases = [is_own & ~is_async, is_own & np.logical_or(*ends)]
    return np.select(cases, ["synchronous", "pageable"], default="").astype(object)


_OWN, _ASYNC = re.compile("Memcpy|Memset"), re.compile("Async")
