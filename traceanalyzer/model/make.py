"""A rank's trace from the tables that a reader made: brought to their schema, sorted by time, and tied together."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from traceanalyzer.model.aside import rearranged
from traceanalyzer.model.copy_engine import with_copied_collectives
from traceanalyzer.model.event_times import possible
from traceanalyzer.model.plain import outer_first
from traceanalyzer.model.schema import NONE, STEPS, TABLES, conform, legible, named, printable
from traceanalyzer.model.tables import array_of, columns_as_they_are, with_columns
from traceanalyzer.model.trace import ProcessGroup, RankMeta, RankTrace
from traceanalyzer.model.window import whole_capture


def make_trace(meta: RankMeta, *, process_ops: pd.Series | None = None, **tables: pd.DataFrame) -> RankTrace:
    """A `RankTrace` of the whole capture without steps; tables that are not given are empty.

    Each table is brought to its schema and sorted by time. `gpu_ops.launch` and `stream_waits.record` are found here by
    correlation, and `comm_args.gpu_op` must refer to the order in which `gpu_ops` is given.

    Args:
        meta: of the rank.
        process_ops: correlation ids of the operations on all GPUs of the rank's process, when it drives several.
        tables: event tables by their names in `TABLES`.
    """
    return trace_of(meta, tables, process_ops)


def trace_of(meta: RankMeta, tables: dict[str, pd.DataFrame], process_ops: pd.Series | None = None) -> RankTrace:
    """The same; the tables are taken out of `tables`, so that they are not held as given and sorted."""
    given = {name: conform(tables.pop(name, None), schema) for name, schema in TABLES.items()}
    found = possible(given, (meta.capture_start_ns, meta.capture_end_ns))
    del given
    meta = _legible(meta)
    if found.left_out or found.backwards:
        skipped, backwards = meta.events_skipped + found.left_out, meta.events_backwards + found.backwards
        meta = replace(meta, events_skipped=skipped, events_backwards=backwards)
    frames = {**found.frames}
    del found
    for name in TABLES:
        frames[name] = _readable(frames.pop(name))
    answering = array_of(frames["gpu_ops"], "correlation") if process_ops is None else process_ops.to_numpy()
    has_gpu_op = _has_gpu_op(array_of(frames["api_calls"], "correlation"), answering)
    frames["api_calls"] = with_columns(frames["api_calls"], has_gpu_op=has_gpu_op)
    for name in ("api_calls", "host_ops", "ranges", "frames", "stream_waits"):
        frames[name] = _by_time(frames.pop(name))
    frames["counters"] = _by_moment(frames.pop("counters"))
    order = np.lexsort((array_of(frames["gpu_ops"], "end_ns"), array_of(frames["gpu_ops"], "start_ns")))
    frames["comm_args"] = _of_sorted_ops(frames.pop("comm_args"), order)
    frames["gpu_ops"] = _launched(frames.pop("gpu_ops"), order, frames)
    called = array_of(frames["api_calls"], "correlation")
    recorded = launch_rows(array_of(frames["stream_waits"], "record_correlation"), called)
    frames["stream_waits"] = with_columns(frames["stream_waits"], record=recorded)
    return RankTrace(
        meta=meta,
        steps=conform(None, STEPS),
        op_step=np.full(len(frames["gpu_ops"]), NONE, dtype=np.int64),
        window=whole_capture(frames["gpu_ops"]),
        **frames,
    )


def _readable(frame: pd.DataFrame) -> pd.DataFrame:
    frame = legible(frame)
    return named(frame) if "name" in frame else frame


def _legible(meta: RankMeta) -> RankMeta:
    """What the trace says of itself, in printable texts."""
    return replace(
        meta,
        host=meta.host and printable(meta.host),
        device_name=meta.device_name and printable(meta.device_name),
        trace_id=meta.trace_id and printable(meta.trace_id),
        versions={printable(name): printable(version) for name, version in meta.versions.items()},
        groups=tuple(
            ProcessGroup(printable(group.name), printable(group.description), group.ranks) for group in meta.groups
        ),
    )


def launch_rows(wanted: np.ndarray, known: np.ndarray) -> np.ndarray:
    """For each correlation id of a GPU operation the row of the host call that is known by it, -1 where there is none.

    Both belong to one process: correlation ids are unique within a process only. Ids ≤ 0 mean "unknown".
    """
    if not len(known):
        return np.full(len(wanted), NONE, dtype=np.int64)
    order = np.argsort(known, kind="stable")
    position = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    row = order[position]
    return np.where((known[row] == wanted) & (wanted > 0), row, NONE)


def _has_gpu_op(calls: np.ndarray, correlation: np.ndarray) -> np.ndarray:
    """Whether a GPU operation has each call's correlation id, which several calls may share. Ids ≤ 0 are unknown.

    Where most operations do not tell theirs, any call may have been answered.
    """
    if 2 * int((correlation > 0).sum()) < len(correlation):
        answered: np.ndarray = calls > 0
        return answered
    found: np.ndarray = (calls > 0) & pd.Index(calls).isin(correlation)
    return found


def _by_time(frame: pd.DataFrame) -> pd.DataFrame:
    # At equal starts the longer comes first, so that a parent precedes its children.
    order = outer_first(array_of(frame, "start_ns"), array_of(frame, "end_ns"))
    columns = columns_as_they_are(frame)
    del frame
    return rearranged(columns, order)


def _by_moment(frame: pd.DataFrame) -> pd.DataFrame:
    order = np.argsort(array_of(frame, "time_ns"), kind="stable")
    columns = columns_as_they_are(frame)
    del frame
    return rearranged(columns, order)


def _of_sorted_ops(comm_args: pd.DataFrame, order: np.ndarray) -> pd.DataFrame:
    """The arguments with their operations' positions in that order."""
    new_row = np.empty(len(order) + 1, dtype=np.int64)
    new_row[order] = np.arange(len(order))
    new_row[NONE] = NONE  # -1 indexes the extra last element
    return with_columns(comm_args, gpu_op=new_row[array_of(comm_args, "gpu_op")])


def _launched(gpu_ops: pd.DataFrame, order: np.ndarray, frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The operations in that order, with the rows of the calls that launched them, as `kind` says what they do."""
    columns = columns_as_they_are(gpu_ops)
    del gpu_ops
    sorted_ops = rearranged(columns, order)
    launch = launch_rows(array_of(sorted_ops, "correlation"), array_of(frames["api_calls"], "correlation"))
    parts = (frames[name] for name in ("api_calls", "host_ops", "comm_args"))
    return with_copied_collectives(with_columns(sorted_ops, launch=launch), *parts)
