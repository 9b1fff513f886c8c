"""Collectives that copies carry out: NCCL's copy engine moves data by copies that look as if they stayed on one GPU."""

import numpy as np
import pandas as pd

from traceanalyzer.model.plain import rows_named, whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, picked, rows_where, with_columns

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
    around = _around(gpu_ops, api_calls, calls, rows)
    busy = np.unique(around[is_comm[rows]])
    may_be = is_copy[rows] & (around != NONE) & ~np.isin(around, busy)
    if not may_be.any():  # almost always: the operators, which are many, need not be looked at
        return gpu_ops
    operators = picked(host_ops, ~rows_named(host_ops, "name", HOST_CALL), ("start_ns", "end_ns", "thread"))
    inner = _around(gpu_ops, api_calls, operators, rows)
    found = rows[may_be & (inner < around)]  # no operator began, and is still open, within the host call
    if not len(found):
        return gpu_ops
    kind = column_of(gpu_ops, "kind").copy()
    kind[found] = "comm"
    return with_columns(gpu_ops, kind=kind)


def _around(gpu_ops: pd.DataFrame, api_calls: pd.DataFrame, spans: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
    """Start of the latest span around each operation's launch on its thread, -1 without one."""
    if spans.empty:
        return np.full(len(rows), NONE)
    launch = array_of(gpu_ops, "launch")[rows]
    times, threads = array_of(api_calls, "start_ns")[launch], array_of(api_calls, "thread")[launch]
    starts, ends, on = (array_of(spans, name) for name in ("start_ns", "end_ns", "thread"))
    found = np.full(len(rows), NONE)
    for thread in np.unique(threads).tolist():
        own = np.flatnonzero(on == thread)
        if not len(own):
            continue
        own = own[np.argsort(starts[own], kind="stable")]
        asked = np.flatnonzero(threads == thread)
        latest = np.searchsorted(starts[own], times[asked], side="right") - 1
        row = own[latest]
        found[asked] = np.where((latest >= 0) & (ends[row] > times[asked]), starts[row], NONE)
    return found
