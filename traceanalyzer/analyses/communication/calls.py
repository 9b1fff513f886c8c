"""Every communication operation of each rank with its arguments: the rows that all communication figures use."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.communication.inferred import with_inferred
from traceanalyzer.analyses.communication.merged_arguments import merged
from traceanalyzer.analyses.communication.operator_arguments import with_operators
from traceanalyzer.analyses.communication.owners import owners
from traceanalyzer.analyses.grouping import by_category
from traceanalyzer.analyses.names import CallsColumn
from traceanalyzer.analyses.time.steps import step_numbers
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import as_objects, rows_named
from traceanalyzer.model.tables import array_of, column_of, rows_where, table_of, with_columns


class Calls(Result[CallsColumn]):
    """One row for each communication kernel or peer-to-peer copy, in order of start within a rank."""

    title: ClassVar[str] = "Communication calls"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "call")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "call": Column.ident("Position among the rank's communication operations."),
        "step": Column.ident("Step that launched it; absent for none."),
        "start_ns": Column.moment("Start on the GPU."),
        "end_ns": Column.moment("End on the GPU."),
        "stream": Column.ident("Stream that it ran on."),
        "collective": Column.text(
            "Collective or point-to-point operation; `coalesced` for different ones in one kernel.",
            written=Written.COLLECTIVE,
        ),
        "group": Column.text("Process group; absent when the trace does not say.", replaced_by="group_label"),
        "group_description": Column.text("What the group is for.", is_secondary=True, replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "group_size": Column.number("Number of ranks in the group.", is_aside=True),
        "dtype": Column.text("Element type.", written=Written.DTYPE, is_aside=True),
        "size_bytes": Column.size(
            "Size of the full array: all-reduce its buffer, all-gather the output, reduce-scatter the input, "
            "all-to-all the send buffer, else the buffer; summed over coalesced operations.",
            is_aside=True,
        ),
        "sequence": Column.ident("NCCL's number of the call within its group."),
        "reduction": Column.text(
            "What a reducing collective computes: sum, avg, max, min, product. Absent when the trace does not say: "
            "NCCL's payloads in Nsight reports do, PyTorch's profiler does not; a kernel named `Sum` serves all.",
            is_aside=True,
        ),
        "root": Column.ident("Root of a rooted collective."),
        "peers": Column.text("Peers of send and receive operations: `send 1, recv 1`."),
        "host_operations": Column.count("Host operations that the call carries.", is_compared=False),
        "is_uneven": Column.flag(
            "Whether an all-to-all's split sizes differ; absent when those that the trace shows are equal, "
            "but it left some out."
        ),
        "arguments": Column.text(
            "Where the arguments come from: kernel, host, operator (sizes only, by the dimensions of the one "
            "that launched it), or inferred from a later step (for a kernel that was launched before the capture); "
            "host, size inferred: by the number of ranks that call its communicator, whose making the capture does "
            "not hold. Absent when nothing tells."
        ),
    }


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's communication operations, each with the arguments of its kernel, else of its host operations.

    A kernel's host operations are those around its launch on the same thread; a launch outside any (a group's
    end) carries those that ended on its thread since the communication launch before it, but for those that launched
    a kernel of their own, which the capture lost, and those that its kernel cannot carry. Of operations inside each
    other the outermost speaks.
    """
    ops = trace.gpu_ops
    rows = np.flatnonzero(rows_named(ops, "kind", "comm"))
    if not len(rows):
        return pd.DataFrame()
    of_ops = {name: column_of(ops, name)[rows] for name in ("start_ns", "end_ns", "stream", "name", "activity", "grid")}
    arguments = merged(trace.comm_args, *owners(trace, rows), len(rows))
    numbers = {"call": np.arange(len(rows)), "gpu_op": rows, "step": step_numbers(trace, rows)}
    table = table_of({"call": numbers["call"], **of_ops, **numbers, **arguments})
    calls = with_inferred(_completed(with_operators(trace, rows, table), column_of(ops, "bytes")[rows]))
    is_counted = trace.counted[rows]
    return calls if is_counted.all() else rows_where(calls, is_counted).reset_index(drop=True)


def across(parts: Mapping[int, pd.DataFrame]) -> Calls:
    """The ranks' calls under each other."""
    return Calls(stack(parts, tuple(Calls.columns)))


def _completed(table: pd.DataFrame, moved_bytes: Any) -> pd.DataFrame:
    """Fill what the operation itself tells: collective from its name, bytes of a peer-to-peer copy."""
    names: Any = column_of(table, "name")
    is_copy = rows_named(table, "activity", "memcpy")
    of_name = np.where(is_copy, "peer_copy", by_category(names, kinds.kernel_collective))
    said = array_of(table, "collective")
    collective = np.where(pd.isna(said), of_name, said)
    collective[pd.isna(collective)] = "unknown"
    # A copy moves its own bytes: the host's call may carry out its collective by several.
    is_moved = is_copy & ~moved_bytes.isna()
    size_bytes = column_of(table, "size_bytes").copy()
    size_bytes[is_moved] = moved_bytes[is_moved]
    return with_columns(table, collective=as_objects(collective), size_bytes=size_bytes)
