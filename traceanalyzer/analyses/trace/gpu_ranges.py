"""Where on the GPU each of the user's ranges lies: from the first to the last operation that it launched."""

import re
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import rows_of_each
from traceanalyzer.analyses.names import GpuRangesColumn
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import is_name, mask_of, texts_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, picked, table_of, with_columns

DEEPEST = 1
"""Ranges nested deeper than this are left out: they are many, and the operations' own names say the rest."""

_OF_THE_TOOLS = re.compile(r"^nccl:|^## Call |^ProfilerStep#|^record_param_comms|^Optimizer\.zero_grad")


class GpuRanges(Result[GpuRangesColumn]):
    """One row for each range that launched GPU work and is at most one deep in others, steps not counted."""

    title: ClassVar[str] = "Ranges on the timeline"
    is_detail: ClassVar[bool] = True
    is_event_copy: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "range")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "range": Column.ident("Position among the rank's ranges, in order of start on the host."),
        "name": Column.text("Name as the user gave it.", written=Written.KERNEL),
        "depth": Column.number("Ranges around it, steps not counted."),
        "start_ns": Column.moment("Start of the first GPU operation launched while it was open, by any thread."),
        "end_ns": Column.moment("End of the last such operation."),
        "operations": Column.count("How many there are."),
    }


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Project each range onto the GPU through the launches inside it."""
    ranges = _of_the_user(trace)
    launch = array_of(trace.gpu_ops, "launch")
    launched = np.flatnonzero((launch != NONE) & trace.counted)
    if ranges.empty or not len(launched):
        return pd.DataFrame()
    times = array_of(trace.api_calls, "start_ns")[launch[launched]]
    order = np.argsort(times, kind="stable")
    ops, times = picked(trace.gpu_ops, launched[order], ("start_ns", "end_ns")), times[order]
    first = np.searchsorted(times, array_of(ranges, "start_ns"), side="left")
    past = np.searchsorted(times, array_of(ranges, "end_ns"), side="left")
    held = past > first
    return table_of(
        {
            "range": np.arange(len(ranges))[held],
            "name": texts_of(column_of(ranges, "name"))[held],
            "depth": array_of(ranges, "depth")[held],
            "start_ns": _reduced(np.minimum, array_of(ops, "start_ns"), first[held], past[held]),
            "end_ns": _reduced(np.maximum, array_of(ops, "end_ns"), first[held], past[held]),
            "operations": (past - first)[held],
        }
    )


def across(parts: Mapping[int, pd.DataFrame]) -> GpuRanges:
    """The ranks' ranges under each other."""
    return GpuRanges(stack(parts, tuple(GpuRanges.columns)))


def _of_the_user(trace: RankTrace) -> pd.DataFrame:
    """Ranges that a person wrote and that are not steps, with their depth; those too deep are left out."""
    every = trace.ranges
    names = column_of(every, "name")
    is_wanted = mask_of(names, lambda name: not _OF_THE_TOOLS.search(name))
    starts_with_step = np.isin(array_of(every, "start_ns"), array_of(trace.steps, "host_start_ns"))
    is_step = is_name(names, *column_of(trace.steps, "name").tolist()) & starts_with_step
    ranges = picked(every, is_wanted & ~is_step)
    starts, ends = array_of(ranges, "start_ns"), array_of(ranges, "end_ns")
    depth = np.zeros(len(ranges), dtype=np.int64)
    for own in rows_of_each(array_of(ranges, "thread")):
        # Sorted by start: those that began before it, less those that had ended.
        depth[own] = np.arange(len(own)) - np.searchsorted(np.sort(ends[own]), starts[own], side="right")
    return picked(with_columns(ranges, depth=depth), depth <= DEEPEST)


def _reduced(function: np.ufunc, values: np.ndarray, first: np.ndarray, past: np.ndarray) -> np.ndarray:
    """`function` over values[first:past] of every pair; none is empty."""
    if not len(first):
        return np.empty(0, dtype=np.int64)
    padded = np.append(values, values[-1])  # `past` may be the length
    return np.asarray(function.reduceat(padded, np.column_stack([first, past]).ravel())[::2], dtype=np.int64)
