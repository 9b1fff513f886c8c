"""Which operator launched each GPU operation, and how operators nest."""

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.host.activity import Nesting, climbed
from traceanalyzer.analyses.trace import launch_moments
from traceanalyzer.kinds import CPU_BACKENDS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    nowhere,
    rows_named,
    rows_named_so,
    whole_of,
)
from traceanalyzer.selection import step_at

# Which operator launched each GPU operation, and which operators belong to autograd's backward pass.


_CALLS = ("c10d::", "record_param_comms", "nccl:", *CPU_BACKENDS)

PASSES = ("forward", "backward", "recompute")

PASS_NAMES = pd.CategoricalDtype(list(PASSES))

NO_LAUNCH = "(no launch recorded)"
"""Operator of GPU operations that were launched before the capture began, or whose launch was lost."""

NO_OPERATOR = "(outside any operator)"
"""Operator of GPU operations whose launch no operator surrounds."""

_NODE = "autograd::engine::evaluate_function"

_DISPATCH = "PythonSubclass"


class OperatorTree(Struct, frozen=True):
    """One rank's operators as a forest; arrays follow `host_ops` or `gpu_ops`.

    Attributes:
        nesting: of `host_ops`.
        owner: for each GPU operation the row in `host_ops` of the innermost operator around its launch; -1
            without a launch, -2 with a launch outside any operator.
        autograd: for each operator its code in `PASSES`; -1 for what autograd neither records nor runs.
        names: of each operator; of the dispatch of tensor subclasses (DTensor) that of the operator that it wraps.
        forward: for each operator that is an autograd node the row of the operator that created it, else -1.
        is_counted: operators that began in the steps that are looked at.
    """

    nesting: Nesting
    owner: np.ndarray
    names: pd.Categorical
    autograd: np.ndarray
    forward: np.ndarray
    is_counted: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace) -> "OperatorTree":
        """Build the forest of a rank.

        Forward is what autograd records (an operator with a sequence number, but no call of communication: these
        take numbers and are not recorded, in metrics and optimizers, too) and what lies inside; backward what
        lies inside an autograd node (`autograd::engine::evaluate_function`, or an operator with a forward
        thread). Recompute is the part of it that records autograd anew, as activation checkpointing
        does: an operator with a sequence number of its own between the node and itself. (A backward pass
        that is itself differentiated looks the same.)
        """
        ops = trace.host_ops
        nesting = Nesting.of(ops)
        is_node = rows_named_so(ops, lambda name: name.startswith(_NODE)) | (whole_of(ops, "forward_thread") > 0)
        node = nesting.handed_down(is_node)
        is_call = rows_named_so(ops, lambda name: name.startswith(_CALLS))
        records = ~ops["sequence"].array.isna() & ~is_node & ~is_call
        recorded, depth = nesting.handed_down(records), np.append(nesting.depth, NONE)  # "none" is above every other
        forward, backward, recompute = range(len(PASSES))
        inside = np.where(depth[recorded] > depth[node], recompute, backward)
        outside = np.where(recorded != NONE, forward, NONE)
        return cls(
            nesting=nesting,
            owner=_owners(trace, nesting),
            names=_names(ops, nesting, is_node),
            autograd=np.where(node == NONE, outside, inside).astype(np.int8),
            forward=_forward_rows(ops, is_node, records),
            is_counted=_is_counted(trace),
        )

    def inherited(self, others: Nesting) -> np.ndarray:
        """For each operator the row of the innermost of other events around it, or around what created its node.

        So a backward operator belongs where its forward operator does, and one that recomputes where the first did.
        """
        rows = others.innermost_at(self.nesting.starts, self.nesting.threads)
        maker = np.append(self.forward, NONE)[self.nesting.handed_down(self.forward != NONE)]
        above = climbed(np.where(rows == NONE, maker, NONE), maker, lambda _, at: rows[at] != NONE)
        return np.where(rows == NONE, np.append(rows, NONE)[above], rows)

    def is_outermost_of_name(self, codes: np.ndarray) -> np.ndarray:
        """Operators that lie inside no other of the same name: sums of totals over these count nothing twice.

        `codes` are a number for each operator, by its name.
        """
        parent = self.nesting.parent
        return climbed(parent, parent, lambda asked, at: codes[at] == codes[asked]) == NONE


def _names(ops: pd.DataFrame, nesting: Nesting, is_node: np.ndarray) -> pd.Categorical:
    """The operators' names; of a dispatch that of the operator around it, else of the first one inside."""
    names, is_dispatch = ops["name"].array, rows_named(ops, "name", _DISPATCH)
    if not is_dispatch.any():
        return names
    rows, parent = np.arange(len(ops)), nesting.parent
    inside = np.flatnonzero((parent != NONE) & np.append(is_dispatch, False)[parent] & ~is_dispatch)[::-1]
    wrapped = rows.copy()
    wrapped[parent[inside]] = inside
    is_around = is_dispatch & (parent != NONE) & ~np.append(is_dispatch | is_node, True)[parent]
    return names.take(np.where(is_around, parent, wrapped))


def _forward_rows(ops: pd.DataFrame, is_node: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Nodes carry the sequence number of the operator that created them: the last to begin with that number.

    Each thread counts for itself, and a node names its creator's thread by a number of the profiler's own
    (`forward_thread`): it is the thread that used most of the numbers of such nodes. Of two that used as many, neither.

    The profiler's `fwdbwd` flows are made from the same two numbers, and link nothing more: on 22 real captures and
    on reentrant and compiled checkpointing, they and this agree on every pair. The reader uses them where the numbers
    are lost.
    """
    found = np.full(len(ops), NONE, dtype=np.int32)
    nodes = np.flatnonzero(is_node & ~ops["sequence"].array.isna())
    if not len(nodes) or not records.any():
        return found
    sequence, thread = whole_of(ops, "sequence"), array_of(ops, "thread")
    makers = last_of_each_number(np.flatnonzero(records), sequence, thread)
    first, end = (np.searchsorted(sequence[makers], sequence[nodes], side=side) for side in ("left", "right"))
    node = np.repeat(nodes, end - first)
    maker = makers[np.arange(len(node)) - np.repeat(np.cumsum(end - first) - end, end - first)]
    is_before = maker < node  # operators are in order of their starts
    node, maker = node[is_before], maker[is_before]
    named = pd.factorize(ops["forward_thread"].array[node], use_na_sentinel=False)[0]
    threads, used = np.unique(thread[maker], return_inverse=True)
    votes = np.zeros((named.max(initial=NONE) + 1, len(threads)), dtype=np.int64)
    np.add.at(votes, (named, used), 1)
    is_most = votes == votes.max(axis=1, keepdims=True, initial=0)
    linked = is_most[named, used] & (is_most.sum(axis=1) == 1)[named]
    found[node[linked]] = maker[linked]
    return found


def last_of_each_number(rows: np.ndarray, sequence: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """The last of the operators with each sequence number on each thread, in order of numbers."""
    ordered = rows[np.lexsort((rows, thread[rows], sequence[rows]))]
    is_last = (np.diff(sequence[ordered]) != 0) | (np.diff(thread[ordered]) != 0)
    return ordered[np.append(is_last, True)[: len(ordered)]]


def _owners(trace: RankTrace, nesting: Nesting) -> np.ndarray:
    launch = trace.launch
    owner = nowhere(len(launch))
    rows = np.flatnonzero(launch != NONE)
    around = nesting.innermost_at(*launch_moments(trace, rows))
    owner[rows] = np.where(around == NONE, NONE - 1, around)
    return owner


def _is_counted(trace: RankTrace) -> np.ndarray:
    if trace.window.steps is None:
        return np.ones(len(trace.host_ops), dtype=bool)
    return np.isin(host_steps(trace), np.flatnonzero(trace.steps["step"].isin(trace.window.steps)))


def host_steps(trace: RankTrace) -> np.ndarray:
    """Row of the step in which each operator began, on whatever thread; -1 for none."""
    starts, ends = arrays_of(trace.steps, "host_start_ns", "host_end_ns")
    return step_at(starts, ends, array_of(trace.host_ops, "start_ns"))
