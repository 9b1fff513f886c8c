"""Which operator launched each GPU operation, and which operators belong to autograd's backward pass."""

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.operators.nesting import Nesting
from traceanalyzer.analyses.trace.launch_moments import launch_moments
from traceanalyzer.kinds import CPU_BACKENDS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named, rows_named_so, whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of
from traceanalyzer.selection import step_at

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
        node: for each operator the row of the innermost autograd node that holds it (or that it is), -1 for none.
        autograd: for each operator its code in `PASSES`; -1 for what autograd neither records nor runs.
        names: of each operator; of the dispatch of tensor subclasses (DTensor) that of the operator that it wraps.
        forward: for each operator that is an autograd node the row of the operator that created it, else -1.
        is_counted: operators that began in the steps that are looked at.
    """

    nesting: Nesting
    owner: np.ndarray
    names: pd.Categorical
    node: np.ndarray
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
        is_node = _is_node(ops)
        node = nesting.handed_down(is_node)
        is_call = rows_named_so(ops, lambda name: name.startswith(_CALLS))
        records = ~column_of(ops, "sequence").isna() & ~is_node & ~is_call
        autograd = _passes(nesting, node, nesting.handed_down(records))
        return cls(
            nesting=nesting,
            owner=_owners(trace, nesting),
            names=_names(ops, nesting, is_node),
            node=node,
            autograd=autograd,
            forward=_forward_rows(ops, is_node, records),
            is_counted=_is_counted(trace),
        )

    def gpu_sums(self, trace: RankTrace) -> tuple[np.ndarray, np.ndarray]:
        """For each operator the number and total duration of the counted GPU operations that it launched itself."""
        held = trace.counted & (self.owner >= 0)
        rows = self.owner[held]
        durations = (array_of(trace.gpu_ops, "end_ns") - array_of(trace.gpu_ops, "start_ns"))[held]
        total = np.zeros(len(trace.host_ops), dtype=np.int64)
        np.add.at(total, rows, durations)
        return np.bincount(rows, minlength=len(trace.host_ops)), total

    def inherited(self, rows: np.ndarray) -> np.ndarray:
        """`rows` of another table, one an operator; where it is -1, that of the operator that created the node around.

        So a backward operator belongs where its forward operator does, and one that recomputes where the first did.
        """
        maker = np.append(self.forward, NONE)[self.nesting.handed_down(self.forward != NONE)]
        found = rows.copy()
        asked = np.flatnonzero((rows == NONE) & (maker != NONE))
        above = maker[asked]
        while len(asked):
            found[asked] = rows[above]
            is_open = (rows[above] == NONE) & (maker[above] != NONE)
            asked, above = asked[is_open], maker[above[is_open]]
        return found

    def is_outermost_of_name(self, codes: np.ndarray) -> np.ndarray:
        """Operators that lie inside no other of the same name: sums of totals over these count nothing twice.

        `codes` are a number for each operator, by its name.
        """
        outermost = np.ones(len(codes), dtype=bool)
        rows = np.flatnonzero(self.nesting.parent != NONE)
        above = self.nesting.parent[rows]
        while len(rows):
            outermost[rows[codes[above] == codes[rows]]] = False
            above = self.nesting.parent[above]
            rows, above = rows[above != NONE], above[above != NONE]
        return outermost


def _names(ops: pd.DataFrame, nesting: Nesting, is_node: np.ndarray) -> pd.Categorical:
    """The operators' names; of a dispatch that of the operator around it, else of the first one inside."""
    names, is_dispatch = column_of(ops, "name"), rows_named(ops, "name", _DISPATCH)
    if not is_dispatch.any():
        return names
    rows, parent = np.arange(len(ops)), nesting.parent
    inside = np.flatnonzero((parent != NONE) & np.append(is_dispatch, False)[parent] & ~is_dispatch)[::-1]
    wrapped = rows.copy()
    wrapped[parent[inside]] = inside
    is_around = is_dispatch & (parent != NONE) & ~np.append(is_dispatch | is_node, True)[parent]
    return names.take(np.where(is_around, parent, wrapped))


def _is_node(ops: pd.DataFrame) -> np.ndarray:
    by_name = rows_named_so(ops, lambda name: name.startswith(_NODE))
    is_node: np.ndarray = by_name | (whole_of(ops, "forward_thread") > 0)
    return is_node


def _passes(nesting: Nesting, node: np.ndarray, recorded: np.ndarray) -> np.ndarray:
    depth = np.append(nesting.depth, np.int32(NONE))  # the depth of row -1, "none", is above every other
    forward, backward, recompute = range(len(PASSES))
    inside = np.where(depth[recorded] > depth[node], recompute, backward)
    outside = np.where(recorded != NONE, forward, NONE)
    return np.where(node == NONE, outside, inside).astype(np.int8)


def _forward_rows(ops: pd.DataFrame, is_node: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Nodes carry the sequence number of the operator that created them: the last to begin with that number.

    Each thread counts for itself, and a node names its creator's thread by a number of the profiler's own
    (`forward_thread`): it is the thread that used most of the numbers of such nodes. Of two that used as many, neither.

    The profiler's `fwdbwd` flows are made from the same two numbers, and link nothing more: on 22 real captures and
    on reentrant and compiled checkpointing, they and this agree on every pair. The reader uses them where the numbers
    are lost.
    """
    found = np.full(len(ops), NONE, dtype=np.int32)
    nodes = np.flatnonzero(is_node & ~column_of(ops, "sequence").isna())
    if not len(nodes) or not records.any():
        return found
    sequence, thread = whole_of(ops, "sequence"), array_of(ops, "thread")
    makers = _last_of_each(np.flatnonzero(records), sequence, thread)
    first, end = (np.searchsorted(sequence[makers], sequence[nodes], side=side) for side in ("left", "right"))
    count = end - first
    node = np.repeat(nodes, count)
    maker = makers[np.arange(len(node)) - np.repeat(np.cumsum(count) - count - first, count)]
    is_before = maker < node  # operators are in order of their starts
    node, maker = node[is_before], maker[is_before]
    named = pd.factorize(column_of(ops, "forward_thread")[node], use_na_sentinel=False)[0]
    threads, used = np.unique(thread[maker], return_inverse=True)
    votes = np.bincount(named * len(threads) + used, minlength=(named.max(initial=-1) + 1) * len(threads))
    votes = votes.reshape(-1, max(len(threads), 1))
    is_most = votes == votes.max(axis=1, keepdims=True, initial=0)
    linked = is_most[named, used] & (is_most.sum(axis=1) == 1)[named]
    found[node[linked]] = maker[linked]
    return found


def _last_of_each(rows: np.ndarray, sequence: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """The last of the rows with each number on each thread, in order of numbers."""
    ordered = rows[np.lexsort((rows, thread[rows], sequence[rows]))]
    is_last = (np.diff(sequence[ordered]) != 0) | (np.diff(thread[ordered]) != 0)
    lasts: np.ndarray = ordered[np.append(is_last, True)]
    return lasts


def _owners(trace: RankTrace, nesting: Nesting) -> np.ndarray:
    launch = array_of(trace.gpu_ops, "launch")
    owner = np.full(len(launch), NONE, dtype=np.int64)
    rows = np.flatnonzero(launch != NONE)
    around = nesting.innermost_at(*launch_moments(trace, rows))
    owner[rows] = np.where(around == NONE, NONE - 1, around)
    return owner


def _is_counted(trace: RankTrace) -> np.ndarray:
    if trace.window.steps is None:
        return np.ones(len(trace.host_ops), dtype=bool)
    step = host_steps(trace)
    return np.isin(step, np.flatnonzero(trace.steps["step"].isin(trace.window.steps).to_numpy()))


def host_steps(trace: RankTrace) -> np.ndarray:
    """Row of the step in which each operator began, on whatever thread; -1 for none."""
    steps = trace.steps
    starts, ends = array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns")
    return step_at(starts, ends, array_of(trace.host_ops, "start_ns"))
