"""Which copies and memsets make the host wait: synchronous calls, and asynchronous ones of pageable memory."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.streams.memory_ops import operations
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE

_KEYS = ["problem", "api_call", "operation", "source_memory", "target_memory"]


class SyncCopies(Result):
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
    ops = trace.gpu_ops[trace.counted & (trace.gpu_ops["launch"] != NONE).to_numpy()]
    ops = ops[ops["activity"].isin(("memcpy", "memset"))]
    if ops.empty:
        return pd.DataFrame()
    calls = trace.api_calls.iloc[ops["launch"].to_numpy()].reset_index(drop=True)
    ops = ops.reset_index(drop=True)
    found = pd.DataFrame(
        {
            "problem": _problems(ops, calls["name"].astype("object")),
            "api_call": calls["name"].astype("object"),
            "operation": operations(ops),
            "source_memory": ops["source_memory"].astype("object"),
            "target_memory": ops["target_memory"].astype("object"),
            "bytes": ops["bytes"],
            "gpu_ns": ops["end_ns"] - ops["start_ns"],
            "host_ns": calls["end_ns"] - calls["start_ns"],
        }
    ).dropna(subset="problem")
    groups = found.groupby(_KEYS, dropna=False)
    table = groups[["gpu_ns", "host_ns"]].sum()
    table["calls"] = groups.size()
    table["total_bytes"] = groups["bytes"].sum(min_count=1)
    return table.sort_values("host_ns", ascending=False, kind="stable").reset_index()


def across(parts: Mapping[int, pd.DataFrame]) -> SyncCopies:
    """The ranks' rows under each other."""
    return SyncCopies(stack(parts, tuple(SyncCopies.columns)))


def _problems(ops: pd.DataFrame, api_call: pd.Series) -> pd.Series:
    """`synchronous` for a memcpy or memset function without Async, else `pageable` where an end is; else absent."""
    is_copy = api_call.str.contains("Memcpy|Memset")  # a graph's copies are launched by neither
    is_async = api_call.str.contains("Async")
    is_pageable = ((ops["source_memory"] == "pageable") | (ops["target_memory"] == "pageable")).to_numpy()
    names = np.select([is_copy & ~is_async, is_copy & is_pageable], ["synchronous", "pageable"], default="")
    return pd.Series(names, dtype="object").replace("", None)
