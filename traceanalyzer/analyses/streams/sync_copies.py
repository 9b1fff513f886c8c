"""Which copies and memsets make the host wait: synchronous calls, and asynchronous ones of pageable memory."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.names import SyncCopiesColumn
from traceanalyzer.analyses.streams.memory_ops import is_copy, operations
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of, mask_of, rows_named, sorted_table
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of

_KEYS = ["problem", "api_call", "operation", "source_memory", "target_memory"]


class SyncCopies(Result[SyncCopiesColumn]):
    """One row for each rank, problem, API call and kind of copy, longest host time first within a rank."""

    title: ClassVar[str] = "Copies that block the host"
    keys: ClassVar[tuple[str, ...]] = ("rank", *_KEYS)
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "problem": Column.text(
            "`synchronous`: the call returns when the copy is done. `pageable`: an asynchronous copy from or "
            "to pageable memory, which CUDA stages through a buffer and may make the host wait for."
        ),
        "api_call": Column.text("Function that launched them."),
        "operation": Column.text("Direction of the copies, or memset.", written=Written.KERNEL),
        "source_memory": Column.text("pinned, pageable, device or managed."),
        "target_memory": Column.text("The same of the other end."),
        "calls": Column.count("Operations.", is_aside=True),
        "total_bytes": Column.size("Sum of their sizes."),
        "gpu_ns": Column.time("Sum of their durations on the GPU.", leads=True),
        "host_ns": Column.time("Sum of the durations of the API calls that launched them."),
    }


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's counted copies and memsets whose launch is known to block, or may."""
    launch = array_of(trace.gpu_ops, "launch")
    held = np.flatnonzero(trace.counted & (launch != NONE) & is_copy(trace.gpu_ops))
    problem = _problems(trace, held)
    held, problem = held[problem != ""], problem[problem != ""]
    if not len(held):
        return pd.DataFrame()
    ops, calls = trace.gpu_ops, launch[held]
    keys = {
        "problem": problem,
        "api_call": column_of(trace.api_calls, "name")[calls].astype("object"),
        "operation": operations(ops)[held],
        "source_memory": column_of(ops, "source_memory")[held].astype("object"),
        "target_memory": column_of(ops, "target_memory")[held].astype("object"),
    }
    groups = Groups.of(keys, _KEYS, with_absent=True)
    sums = {
        "gpu_ns": groups.sums(lengths_of(ops)[held]),
        "host_ns": groups.sums(lengths_of(trace.api_calls)[calls]),
        "calls": groups.counts(),
        "total_bytes": groups.total(column_of(ops, "bytes")[held]),
    }
    return sorted_table({**groups.keys, **sums}, "host_ns")


def across(parts: Mapping[int, pd.DataFrame]) -> SyncCopies:
    """The ranks' rows under each other."""
    return SyncCopies(stack(parts, tuple(SyncCopies.columns)))


def _problems(trace: RankTrace, rows: np.ndarray) -> np.ndarray:
    """`synchronous` for a memcpy or memset function without Async, else `pageable` where an end is; else empty."""
    calls = array_of(trace.gpu_ops, "launch")[rows]
    # A graph's copies are launched by neither.
    names = column_of(trace.api_calls, "name")
    is_plain, is_async = (mask_of(names, test)[calls] for test in (_is_plain, _is_async))
    is_pageable = np.zeros(len(rows), dtype=bool)
    for end in ("source_memory", "target_memory"):
        is_pageable |= rows_named(trace.gpu_ops, end, "pageable")[rows]
    return np.select([is_plain, is_async & is_pageable], ["synchronous", "pageable"], default="").astype(object)


def _is_plain(name: str) -> bool:
    return ("Memcpy" in name or "Memset" in name) and "Async" not in name


def _is_async(name: str) -> bool:
    return ("Memcpy" in name or "Memset" in name) and "Async" in name
