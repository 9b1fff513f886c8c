"""A rank's trace from the tables that a reader made."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import astuple

from traceanalyzer.kinds import KINDS, KindRules, copy_kind
from traceanalyzer.meaning.rows import LATEST_NS, LONGEST_NS
from traceanalyzer.model.schema import NONE, STEPS, TABLES, conform, legible, named, printable
from traceanalyzer.model.tables import (
    array_of,
    column_of,
    columns_as_they_are,
    innermost,
    outer_first,
    pairs_of,
    picked,
    rearranged,
    rows_named,
    rows_where,
    texts_as_category,
    whole_of,
    with_columns,
)
from traceanalyzer.model.trace import ProcessGroup, RankMeta, RankTrace, whole_capture

# Collectives that copies carry out: NCCL's copy engine moves data by copies that look as if they stayed on one GPU.


HOST_CALL = "record_param_comms"
"""The operator around each call into the communication library; its arguments are those of the collective."""


def with_copied_collectives(
    gpu_ops: pd.DataFrame, api_calls: pd.DataFrame, host_ops: pd.DataFrame, comm_args: pd.DataFrame
) -> pd.DataFrame:
    """The operations, where copies on one GPU that a collective's host call launches itself are communication.

    Peers' memory that is mapped into a process looks like its own. A copy counts when no operator (`aten::copy_`)
    stands between it and the host call of a group of several ranks, and that call launches no kernel that
    communicates: then the copies are all that can move its data.
    """
    has_launch = array_of(gpu_ops, "launch") != NONE
    is_copy = rows_named(gpu_ops, "direction", "DtoD") & has_launch
    if not is_copy.any():
        return gpu_ops
    calls = rows_where(comm_args, (array_of(comm_args, "gpu_op") == NONE) & (whole_of(comm_args, "group_size") > 1))
    if calls.empty:
        return gpu_ops
    is_comm = rows_named(gpu_ops, "kind", "comm") & has_launch
    rows = np.flatnonzero(is_copy | is_comm)
    launch = array_of(gpu_ops, "launch")[rows]
    asked = array_of(api_calls, "thread")[launch], array_of(api_calls, "start_ns")[launch]
    around = innermost(calls, *asked)
    busy = np.unique(around[is_comm[rows]])
    may_be = is_copy[rows] & (around != NONE) & ~np.isin(around, busy)
    if not may_be.any():  # almost always: the operators, which are many, need not be looked at
        return gpu_ops
    operators = picked(host_ops, ~rows_named(host_ops, "name", HOST_CALL), ("start_ns", "end_ns", "thread"))
    inner, outer = (
        np.append(array_of(spans, "start_ns"), NONE)[row]
        for spans, row in ((operators, innermost(operators, *asked)), (calls, around))
    )
    found = rows[may_be & (inner < outer)]  # no operator began, and is still open, within the host call
    if not len(found):
        return gpu_ops
    kind = gpu_ops["kind"].array.copy()
    kind[found] = "comm"
    return with_columns(gpu_ops, kind=kind)


# Times of events that cannot be: such events are left out, or count as taking no time, and are counted.


UNKNOWN_NS = np.iinfo(np.int64).min
"""Stands for a time that is not there: with a clock's start added it is one that cannot be."""

LONGEST_CAPTURE_NS = 24 * 3600 * 10**9
"""No recording lasts longer."""

OUTSIDE_NS = 10 * 10**9
"""No operation runs so long before a recording began, or after it ended, however clocks of GPU and host differ."""

Recorded = tuple[int | None, int | None]
"""When a recording began and ended, where its file says so."""

_FEW = 0.1
"""So many events of a kind that lie further from the others are two recordings; fewer are damaged."""


class Possible(Struct, frozen=True):
    """Tables of events that can be.

    Attributes:
        frames: the tables; `comm_args.gpu_op` refers to the operations that are left.
        left_out: events whose time or length cannot be.
        backwards: events that ended before they started: they are kept, and take no time.
    """

    frames: dict[str, pd.DataFrame]
    left_out: int
    backwards: int


def possible(frames: Mapping[str, pd.DataFrame], recorded: Recorded = (None, None)) -> Possible:
    """The tables without what cannot be. Almost always nothing is to be done."""
    kept, left_out, backwards = dict(frames), 0, 0
    middle_ns = _middle_ns(frames)
    for name in frames:
        frame = kept[name]  # of arguments those whose operations are left
        if "start_ns" not in frame or frame.empty:
            continue
        start, end = array_of(frame, "start_ns"), array_of(frame, "end_ns")
        is_backwards = end < start
        if is_backwards.any():
            end = np.maximum(start, end)
            frame = frame.assign(end_ns=end)
            backwards += int(is_backwards.sum())
        is_possible = (start >= -LATEST_NS) & (end <= LATEST_NS) & (start <= end)
        is_possible &= end - np.where(is_possible, start, end) <= LONGEST_NS
        is_possible = _without_few(_is_far(start, middle_ns, is_possible), is_possible)
        if name == "gpu_ops":
            is_possible = _without_few(is_outside(start, recorded), is_possible)
        if not is_possible.all():
            left_out += int((~is_possible).sum())
            if name == "gpu_ops" and "comm_args" in kept:
                kept["comm_args"] = args_of_kept_ops(kept["comm_args"], is_possible)
            frame = frame[is_possible].reset_index(drop=True)
        kept[name] = frame
    return Possible(kept, left_out, backwards)


def _middle_ns(frames: Mapping[str, pd.DataFrame]) -> int | None:
    """A time within the recording: the median of what ran on the GPU, else of the host's operators."""
    named = (array_of(frames[name], "start_ns") for name in ("gpu_ops", "host_ops") if name in frames)
    starts = next((each for each in named if len(each)), None)
    return None if starts is None else int(np.partition(starts, len(starts) // 2)[len(starts) // 2])


def _is_far(start: np.ndarray, middle_ns: int | None, is_possible: np.ndarray) -> np.ndarray:
    """Mask of the possible events that lie further from the recording's middle than any recording lasts."""
    if middle_ns is None:
        return np.zeros(len(start), dtype=bool)
    # Those that are impossible lie anywhere: their distance may not fit.
    is_far: np.ndarray = np.abs(np.where(is_possible, start, middle_ns) - middle_ns) > LONGEST_CAPTURE_NS
    return is_far


def is_outside(start: np.ndarray, recorded: Recorded) -> np.ndarray:
    """Mask of the operations that begin over `OUTSIDE_NS` before a recording began, or after it ended."""
    begin, end = recorded
    is_early = start < begin - OUTSIDE_NS if begin is not None else np.zeros(len(start), dtype=bool)
    is_late = start > end + OUTSIDE_NS if end is not None else np.zeros(len(start), dtype=bool)
    return np.asarray(is_early | is_late)


def _without_few(is_odd: np.ndarray, is_possible: np.ndarray) -> np.ndarray:
    """The possible events without the odd ones, where these are few: many are another recording, or another clock."""
    return is_possible & ~is_odd if 0 < is_odd.sum() < _FEW * is_possible.sum() else is_possible


def args_of_kept_ops(comm_args: pd.DataFrame, is_kept: np.ndarray) -> pd.DataFrame:
    """Arguments of the host and of the operations that are left, at their new positions."""
    if comm_args.empty or is_kept.all():
        return comm_args
    position = np.append(np.where(is_kept, np.cumsum(is_kept) - 1, NONE), NONE)
    row = array_of(comm_args, "gpu_op")
    is_own = (row == NONE) | (position[row] != NONE)
    return comm_args.assign(gpu_op=position[row])[is_own].reset_index(drop=True)


# A rank's trace from the tables that a reader made: brought to their schema, sorted by time, and tied together.


def make_trace(
    meta: RankMeta, *, process_ops: pd.Series | None = None, rules: KindRules | None = None, **tables: pd.DataFrame
) -> RankTrace:
    """A `RankTrace` of the whole capture without steps; tables that are not given are empty.

    Each table is brought to its schema and sorted by time. `gpu_ops.launch` and `stream_waits.record` are found here by
    correlation, and `comm_args.gpu_op` must refer to the order in which `gpu_ops` is given.

    Args:
        meta: of the rank.
        process_ops: correlation ids of the operations on all GPUs of the rank's process, when it drives several.
        rules: what kinds GPU operations are of that are given without one; the built-in rules when absent.
        tables: event tables by their names in `TABLES`.
    """
    return trace_of(meta, tables, process_ops, rules)


def trace_of(
    meta: RankMeta,
    tables: dict[str, pd.DataFrame],
    process_ops: pd.Series | None = None,
    rules: KindRules | None = None,
) -> RankTrace:
    """The same; the tables are taken out of `tables`, so that they are not held as given and sorted."""
    given = {name: conform(tables.pop(name, None), schema) for name, schema in TABLES.items()}
    found = possible(given, (meta.capture_start_ns, meta.capture_end_ns))
    del given
    meta = replace(
        meta,
        host=meta.host and printable(meta.host),
        device_name=meta.device_name and printable(meta.device_name),
        trace_id=meta.trace_id and printable(meta.trace_id),
        versions={printable(name): printable(version) for name, version in meta.versions.items()},
        groups=tuple(
            ProcessGroup(printable(group.name), printable(group.description), group.ranks) for group in meta.groups
        ),
    )
    if found.left_out or found.backwards:
        skipped, backwards = meta.events_skipped + found.left_out, meta.events_backwards + found.backwards
        meta = replace(meta, events_skipped=skipped, events_backwards=backwards)
    frames = {**found.frames}
    del found
    frames["gpu_ops"] = _with_kinds(frames.pop("gpu_ops"), rules or KindRules())
    for name in TABLES:
        frame = legible(frames.pop(name))
        frames[name] = named(frame) if "name" in frame else frame
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


def _with_kinds(ops: pd.DataFrame, rules: KindRules) -> pd.DataFrame:
    """The operations with what their names say: kind, and for copies direction and memories; as they are with kinds."""
    if not (column_of(ops, "kind").codes == NONE).any():
        return ops
    ops = named(ops)
    pairs, pair_of_op = pairs_of(column_of(ops, "name"), column_of(ops, "activity"))
    copies = (copy_kind(name if activity == "memcpy" else "") for name, activity in pairs)
    texts = zip(*map(astuple, copies), strict=True)
    columns = dict(zip(("direction", "source_memory", "target_memory"), map(texts_as_category, texts), strict=True))
    columns["kind"] = pd.Categorical([rules.kind(*pair) for pair in pairs], categories=list(KINDS))
    return with_columns(ops, **{name: column.take(pair_of_op) for name, column in columns.items()})


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
