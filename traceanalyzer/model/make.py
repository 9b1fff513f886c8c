"""A rank's trace from the tables that a reader made: brought to their schema, sorted by time, and tied together."""

from dataclasses import replace

import numpy as np
import pandas as pd

from traceanalyzer.model.copy_engine import with_copied_collectives
from traceanalyzer.model.event_times import possible
from traceanalyzer.model.schema import NONE, STEPS, TABLES, conform, legible, named, printable
from traceanalyzer.model.tables import array_of, picked, with_columns
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
    given = {name: conform(tables.get(name), schema) for name, schema in TABLES.items()}
    found = possible(given, (meta.capture_start_ns, meta.capture_end_ns))
    frames = {name: legible(frame) for name, frame in found.frames.items()}
    frames = {name: named(frame) if "name" in frame else frame for name, frame in frames.items()}
    meta = _legible(meta)
    if found.left_out or found.backwards:
        skipped, backwards = meta.events_skipped + found.left_out, meta.events_backwards + found.backwards
        meta = replace(meta, events_skipped=skipped, events_backwards=backwards)
    answering = frames["gpu_ops"]["correlation"] if process_ops is None else process_ops
    has_gpu_op = _has_gpu_op(frames["api_calls"]["correlation"], answering)
    frames["api_calls"] = _by_time(with_columns(frames["api_calls"], has_gpu_op=has_gpu_op))
    frames["host_ops"] = _by_time(frames["host_ops"])
    frames["ranges"] = _by_time(frames["ranges"])
    frames["frames"] = _by_time(frames["frames"])
    frames["counters"] = frames["counters"].sort_values("time_ns", kind="stable", ignore_index=True)
    frames["gpu_ops"], frames["comm_args"] = _sorted_ops(frames["gpu_ops"], frames["comm_args"])
    frames["gpu_ops"] = with_columns(
        frames["gpu_ops"], launch=launch_rows(frames["gpu_ops"]["correlation"], frames["api_calls"]["correlation"])
    )
    parts = (frames[name] for name in ("gpu_ops", "api_calls", "host_ops", "comm_args"))
    frames["gpu_ops"] = with_copied_collectives(*parts)
    frames["stream_waits"] = _by_time(frames["stream_waits"])
    recorded = launch_rows(frames["stream_waits"]["record_correlation"], frames["api_calls"]["correlation"])
    frames["stream_waits"] = with_columns(frames["stream_waits"], record=recorded)
    return RankTrace(
        meta=meta,
        steps=conform(None, STEPS),
        op_step=np.full(len(frames["gpu_ops"]), NONE, dtype=np.int64),
        window=whole_capture(frames["gpu_ops"]),
        **frames,
    )


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


def launch_rows(correlation: pd.Series, call_correlation: pd.Series) -> np.ndarray:
    """For each GPU operation the row of the host call with its correlation id, -1 where there is none.

    Both belong to one process: correlation ids are unique within a process only. Ids ≤ 0 mean "unknown".
    """
    wanted, known = correlation.to_numpy(), call_correlation.to_numpy()
    if not len(known):
        return np.full(len(wanted), NONE, dtype=np.int64)
    order = np.argsort(known, kind="stable")
    position = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    row = order[position]
    return np.where((known[row] == wanted) & (wanted > 0), row, NONE)


def _has_gpu_op(call_correlation: pd.Series, correlation: pd.Series) -> np.ndarray:
    """Whether a GPU operation has each call's correlation id, which several calls may share. Ids ≤ 0 are unknown.

    Where most operations do not tell theirs, any call may have been answered.
    """
    calls = call_correlation.to_numpy()
    if 2 * int((correlation > 0).sum()) < len(correlation):
        answered: np.ndarray = calls > 0
        return answered
    found: np.ndarray = (calls > 0) & call_correlation.isin(correlation.to_numpy()).to_numpy(dtype=bool)
    return found


def _by_time(frame: pd.DataFrame) -> pd.DataFrame:
    # At equal starts the longer comes first, so that a parent precedes its children.
    order = np.lexsort((-array_of(frame, "end_ns"), array_of(frame, "start_ns")))
    return picked(frame, order)


def _sorted_ops(gpu_ops: pd.DataFrame, comm_args: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    order = np.lexsort((array_of(gpu_ops, "end_ns"), array_of(gpu_ops, "start_ns")))
    new_row = np.empty(len(order) + 1, dtype=np.int64)
    new_row[order] = np.arange(len(order))
    new_row[NONE] = NONE  # -1 indexes the extra last element
    return (
        picked(gpu_ops, order),
        with_columns(comm_args, gpu_op=new_row[array_of(comm_args, "gpu_op")]),
    )
