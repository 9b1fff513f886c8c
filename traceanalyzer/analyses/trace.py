"""What a capture holds: ranks, windows, completeness; GPU counters; user ranges on the GPU."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, is_true, stack
from traceanalyzer.analyses.grouping import rows_of_each
from traceanalyzer.job.run_info import Placed
from traceanalyzer.meaning.columns import Adds, Column, Unit, Written, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    is_name,
    mask_of,
    picked,
    table_of,
    texts_of,
    whole_of,
    with_columns,
)
from traceanalyzer.readers import FORMATS
from traceanalyzer.readers.base import DEVICE_NUMBER, DEVICE_ORDER

# What the GPUs' own counters said on average: SM activity, memory and link bandwidth, network.


# Kineto's memory events: levels that change with each allocation, of which a mean over samples says nothing.
_LEVELS = ("memory_allocated_bytes", "memory_reserved_bytes")


class GpuMetrics(Result):
    """One row for each rank and counter, in order of name."""

    title = "GPU and network metrics"
    keys = ("rank", "counter")
    columns = {
        "rank": RANK,
        "counter": Column.text("Name as the profiler has it, with its unit in brackets; clocks in MHz."),
        "samples": Column.count("Samples in the window.", is_compared=False),
        "mean": Column.number("Mean over them."),
        "min": Column.number("Smallest."),
        "max": Column.number("Largest."),
    }


def gpu_metrics_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Mean of each sampled counter inside the rank's window; samples are equally far apart."""
    counters = trace.counters
    inside = trace.window.holds(array_of(counters, "time_ns")) & counters["value"].notna()
    chosen = counters[inside & ~counters["name"].isin(_LEVELS)]
    if chosen.empty:
        return pd.DataFrame()
    table = chosen.groupby("name", observed=True)["value"].agg(samples="size", mean="mean", min="min", max="max")
    return table.sort_index().rename_axis("counter").reset_index().astype({"counter": "str"})


# Where on the GPU each of the user's ranges lies: from the first to the last operation that it launched.


DEEPEST = 1
"""Ranges nested deeper than this are left out: they are many, and the operations' own names say the rest."""

_OF_THE_TOOLS = re.compile(r"^nccl:|^## Call |^ProfilerStep#|^record_param_comms|^Optimizer\.zero_grad")


class GpuRanges(Result):
    """One row for each range that launched GPU work and is at most one deep in others, steps not counted."""

    title = "Ranges on the timeline"
    is_detail = True
    is_event_copy = True
    keys = ("rank", "range")
    columns = declared(
        rank=RANK,
        range=Column.ident("Position among the rank's ranges, in order of start on the host."),
        name="Name as the user gave it.",
        depth="Ranges around it, steps not counted.",
        start_ns="Start of the first GPU operation launched while it was open, by any thread.",
        end_ns="End of the last such operation.",
        operations="How many there are.",
    )


def gpu_ranges_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Project each range onto the GPU through the launches inside it."""
    ranges, launched = _of_the_user(trace), launched_operations(trace, is_as_captured=False)
    if ranges.empty or launched.empty:
        return pd.DataFrame()
    names = texts_of(ranges["name"].array)
    table = {"range": np.arange(len(ranges)), "name": names, "depth": array_of(ranges, "depth")}
    table |= projected(ranges, launched)
    held = table["operations"] > 0
    return table_of({name: own[held] for name, own in table.items()})


def _of_the_user(trace: RankTrace) -> pd.DataFrame:
    """Ranges that a person wrote and that are not steps, with their depth; those too deep are left out."""
    every = trace.ranges
    names = every["name"].array
    is_wanted = mask_of(names, lambda name: not _OF_THE_TOOLS.search(name))
    starts_with_step = np.isin(array_of(every, "start_ns"), array_of(trace.steps, "host_start_ns"))
    is_step = is_name(names, *trace.steps["name"].array.tolist()) & starts_with_step
    ranges = picked(every, is_wanted & ~is_step)
    starts, ends = array_of(ranges, "start_ns"), array_of(ranges, "end_ns")
    depth = depths(array_of(ranges, "thread"), starts, ends)
    return picked(with_columns(ranges, depth=depth), depth <= DEEPEST)


def depths(lanes: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """How many of its lane's spans lie around each, which are sorted by start: begun before it, and not ended."""
    found = np.zeros(len(lanes), dtype=np.int64)
    for own in rows_of_each(lanes):
        found[own] = np.arange(len(own)) - np.searchsorted(np.sort(ends[own]), starts[own], side="right")
    return found


# Which ranks there are: device, window, versions, and how complete each one's trace is.


class Ranks(Result):
    """One row for each rank."""

    title = "Ranks"
    keys = ("rank",)
    is_of_one_run = True
    columns = declared(
        rank=RANK,
        rank_source=Column.text("Where its number comes from.", is_secondary=True),
        files=Column.text("Files that its events come from.", is_secondary=True),
        format=Column.text("Input format.", is_secondary=True),
        host="Host: as `--hosts` says, the trace, or its run.json; absent where none does.",
        rack=Column.text("Rack, as `--hosts` says.", is_secondary=True),
        device=Column.ident("GPU's number on its host.", is_secondary=True),
        device_name="GPU's model.",
        device_bytes="Memory of the GPU; absent where the trace does not say.",
        multiprocessors=Column.number(
            "Multiprocessors of the GPU, or of the slice of it that the process has; absent where no trace says it.",
            is_secondary=True,
        ),
        devices_seen=Column.number("GPUs that the process saw, used or not.", is_secondary=True),
        world_size=Column.number("Ranks of the job, as the trace says."),
        window=Column.text("Which part of the capture the row covers.", is_secondary=True),
        window_start_ns=Column.moment(
            "Start of that window, ns since the epoch (or since the trace's own zero).", is_secondary=True
        ),
        window_end_ns=Column.moment(
            "Its end. Steps that do not follow each other leave time between that is not of the window.",
            is_secondary=True,
        ),
        window_ns="Length of that window.",
        capture_ns=Column.time("Length of the profiler's recording.", adds=Adds.DERIVED),
        operations="GPU operations.",
        operations_without_launch=Column.count(
            "GPU operations whose host call the capture does not have.", is_compared=False
        ),
        api_calls=Column.count("CUDA API calls on the host.", is_compared=False, is_secondary=True),
        truncated=Column.flag("The file is cut off."),
        events_skipped=Column.count("Events that could not be read.", is_compared=False),
        versions=Column.text("Software that the trace names.", written=Written.VERSIONS),
        notes="What else a reader of this rank's figures must know.",
    )

    @property
    def is_one_process(self) -> bool:
        """Whether one process drives the GPUs of all ranks, as far as the traces tell: several, in one trace of it."""
        formats = [name for name, one in FORMATS.items() if one.has_one_process]
        by_device = self.table["rank_source"].isin((DEVICE_ORDER, DEVICE_NUMBER))
        of_process = by_device & self.table["format"].isin(formats)
        # Files of two processes may bear one name, but they were not recorded for the same time to the nanosecond.
        is_one_file = len(self.table["files"].unique()) == 1 and len(self.table["capture_ns"].unique()) == 1
        return len(self.table) > 1 and bool(of_process.all()) and is_one_file

    @property
    def cut_off(self) -> frozenset[int]:
        """Ranks whose files are cut off."""
        return frozenset(int(rank) for rank in self.table.loc[is_true(self.table["truncated"]), "rank"])


def ranks_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's meta data and counts."""
    meta = trace.meta
    known = meta.capture_start_ns is not None and meta.capture_end_ns is not None
    row: dict[str, Any] = {
        "rank_source": meta.rank_source,
        "files": ", ".join(meta.files),
        "format": meta.format,
        "host": meta.host,
        "device": meta.device,
        "device_name": meta.device_name,
        "device_bytes": meta.device_bytes,
        "multiprocessors": meta.multiprocessors,
        "devices_seen": meta.devices_seen,
        "world_size": meta.world_size,
        "window": trace.window.label,
        "window_start_ns": trace.window.start_ns if len(trace.gpu_ops) else None,
        "window_end_ns": trace.window.end_ns if len(trace.gpu_ops) else None,
        "window_ns": trace.window.length_ns if len(trace.gpu_ops) else None,
        "capture_ns": meta.capture_end_ns - meta.capture_start_ns if known else None,  # type: ignore[operator]
        "operations": len(trace.gpu_ops),
        "operations_without_launch": int(np.count_nonzero(trace.launch == NONE)),
        "api_calls": len(trace.api_calls),
        "truncated": meta.is_truncated,
        "events_skipped": meta.events_skipped,
        "versions": ", ".join(f"{name} {version}" for name, version in meta.versions.items()) or None,
        "notes": " ".join(meta.notes) or None,
    }
    is_number = {name: Ranks.columns[name].unit not in (Unit.TEXT, Unit.FLAG) for name in row}
    return table_of({name: pd.array([own], dtype="Int64") if is_number[name] else [own] for name, own in row.items()})


def ranks_across(
    parts: Mapping[int, pd.DataFrame],
    hosts: Mapping[int, Placed] | None = None,
    run_hosts: Mapping[int, str] | None = None,
) -> Ranks:
    """The ranks' rows; `hosts` outweigh what the traces say, `run_hosts` stand in where they say nothing."""
    table = stack(parts, tuple(Ranks.columns))
    placed = [(hosts or {}).get(rank, Placed()) for rank in table["rank"]]
    own = table["host"].astype("object").fillna(table["rank"].map(run_hosts or {}))
    host = [place.host or known for place, known in zip(placed, own, strict=True)]
    names = {"host": host, "rack": [place.rack for place in placed]}
    return Ranks(table.assign(**{name: pd.Series(texts, table.index, dtype="object") for name, texts in names.items()}))


# When and on which thread GPU operations were launched; those of a graph as it was captured.


def launch_moments(trace: RankTrace, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moments (ns) and threads of these rows of `gpu_ops`, which have a launch."""
    launch = trace.launch[rows]
    starts, threads = arrays_of(trace.api_calls, "start_ns", "thread", rows=launch)
    captured = whole_of(trace.gpu_ops, "captured_ns")[rows]
    return np.where(captured == NONE, starts, captured), threads


def launched_operations(trace: RankTrace, *, is_as_captured: bool = True) -> pd.DataFrame:
    """Counted GPU operations, `start_ns` and `end_ns`, with `launch_ns` and `thread` of their launch, in its order.

    Those of a graph as it was captured, or where it was launched.
    """
    rows = np.flatnonzero(trace.counted & (trace.launch != NONE))
    moments, threads = launch_moments(trace, rows)
    if not is_as_captured:
        moments = array_of(trace.api_calls, "start_ns")[trace.launch[rows]]
    order = np.argsort(moments, kind="stable")
    times = {name: array_of(trace.gpu_ops, name)[rows[order]] for name in ("start_ns", "end_ns")}
    return table_of({"launch_ns": moments[order], "thread": threads[order], **times})


def projected(ranges: pd.DataFrame, launched: pd.DataFrame) -> dict[str, np.ndarray]:
    """How many operations were launched in each range, and their first start and last end: meaningless of none."""
    launch_ns = array_of(launched, "launch_ns")
    first, past = (np.searchsorted(launch_ns, array_of(ranges, name)) for name in ("start_ns", "end_ns"))
    bounds = np.column_stack([first, past]).ravel()  # reduceat takes no position past the end
    starts, ends = (np.append(array_of(launched, name), 0) for name in ("start_ns", "end_ns"))
    return {
        "operations": past - first,
        "start_ns": np.minimum.reduceat(starts, bounds)[::2],
        "end_ns": np.maximum.reduceat(ends, bounds)[::2],
    }
