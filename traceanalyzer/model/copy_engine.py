"""Collectives that copies carry out: NCCL's copy engine moves data by copies that look as if they stayed on one GPU."""

import numpy as np
import pandas as pd

from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import picked

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
    is_copy = (gpu_ops["direction"] == "DtoD").to_numpy() & (gpu_ops["launch"] != NONE).to_numpy()
    calls = comm_args[(comm_args["gpu_op"] == NONE) & (comm_args["group_size"].fillna(0) > 1)]
    if not is_copy.any() or calls.empty:
        return gpu_ops
    is_comm = (gpu_ops["kind"] == "comm").to_numpy() & (gpu_ops["launch"] != NONE).to_numpy()
    rows = np.flatnonzero(is_copy | is_comm)
    around = _around(gpu_ops, api_calls, calls, rows)
    busy = np.unique(around[is_comm[rows]])
    may_be = is_copy[rows] & (around != NONE) & ~np.isin(around, busy)
    if not may_be.any():  # almost always: the operators, which are many, need not be looked at
        return gpu_ops
    operators = picked(host_ops, (host_ops["name"] != HOST_CALL).to_numpy(), ("start_ns", "end_ns", "thread"))
    inner = _around(gpu_ops, api_calls, operators, rows)
    found = rows[may_be & (inner < around)]  # no operator began, and is still open, within the host call
    if not len(found):
        return gpu_ops
    kind = gpu_ops["kind"].copy()
    kind.iloc[found] = "comm"
    return gpu_ops.assign(kind=kind)


def _around(gpu_ops: pd.DataFrame, api_calls: pd.DataFrame, spans: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
    """Start of the latest span around each operation's launch on its thread, -1 without one."""
    if spans.empty:
        return np.full(len(rows), NONE)
    calls = api_calls.iloc[gpu_ops["launch"].to_numpy()[rows]][["start_ns", "thread"]].assign(
        place=np.arange(len(rows))
    )
    opened = spans[["start_ns", "thread"]].assign(row=np.arange(len(spans))).sort_values("start_ns", kind="stable")
    merged = pd.merge_asof(calls.sort_values("start_ns"), opened, on="start_ns", by="thread").sort_values("place")
    row = merged["row"].fillna(NONE).to_numpy(dtype=np.int64)
    is_open = (row != NONE) & (spans["end_ns"].to_numpy()[row] > calls["start_ns"].to_numpy())
    return np.where(is_open, spans["start_ns"].to_numpy()[row], NONE)
