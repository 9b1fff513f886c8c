"""How operators and modules nest: who launched each GPU operation, which ones do the same work, and the module tree."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses import breakdown
from traceanalyzer.analyses.base import RANK, all_known, joined, taken
from traceanalyzer.analyses.grouping import Groups, number_in_group, rows_of_each, sums_at
from traceanalyzer.analyses.host.activity import Nesting, climbed
from traceanalyzer.analyses.trace import launch_moments
from traceanalyzer.kinds import CPU_BACKENDS, Call
from traceanalyzer.meaning.columns import Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import LONGEST_NAME, NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    lengths_of,
    nowhere,
    nullable,
    outer_first,
    picked,
    rows_named,
    rows_named_so,
    table_of,
    text_array,
    texts_of,
    whole_of,
    with_columns,
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


_LISTS = ("TensorList", "GenericList")
"""Types of arguments that hold tensors, whose shapes many versions of PyTorch do not record."""

_MIXED = np.uint64(0x9E3779B97F4A7C15)


def same_work(trace: RankTrace, tree: OperatorTree) -> np.ndarray:
    """For each GPU operation a number that those of all ranks share which do the same work; -1 where it is not known.

    The same work is the same kernel in the same grid and block, launched by the same operator with inputs of the same
    shapes and element types. A kernel's name and grid alone do not tell how much it does: one that stays on its
    multiprocessors has one grid for every size, and so have products of any inner size.

    Where one of these is not recorded, the place in the step stands for it: the n-th operation of a name, grid, block
    and operator in order of launch is the same work as the n-th in another step, or on another rank, that runs as many
    of them. A capture without steps is one; outside of others' steps nothing is known of such operations.
    """
    of_ops = [trace.gpu_ops[name].array for name in ("name", "grid", "block")]
    of_calls = [taken(trace.host_ops[name].array, tree.owner) for name in ("name", "shapes", "dtypes")]
    operator, shapes, dtypes = of_calls
    launched = _mixed([_hashes(column) for column in (*of_ops, operator)])
    is_recorded = np.all([column.codes != NONE for column in (*of_ops, operator)], axis=0)
    is_recorded &= _tell_sizes(shapes, dtypes)
    place, is_placed = _places(trace, launched)
    work = np.where(is_recorded, _mixed([launched, _hashes(shapes), _hashes(dtypes)]), _mixed([launched, place]))
    return np.where(is_recorded | is_placed, (work >> np.uint64(1)).astype(np.int64), NONE)


def _places(trace: RankTrace, launched: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each operation how many of what is `launched` its step runs, which of them it is, and whether it has a step.

    In order of launch; of what one call launched, as a graph, in order of start.
    """
    ops, step = trace.gpu_ops, trace.op_step
    order = np.lexsort((array_of(ops, "start_ns"), array_of(ops, "launch")))
    groups = Groups.of({"step": step, "launched": launched.view(np.int64)})
    number = np.empty(len(ops), dtype=np.int64)
    number[order] = number_in_group(groups.of_row[order])
    place = _mixed([groups.counts()[groups.of_row].astype(np.uint64), number.astype(np.uint64)])
    return place, (step != NONE) | (not len(trace.steps))


def _tell_sizes(shapes: Any, dtypes: Any) -> np.ndarray:
    """Of each call whether its tensors' shapes and element types are recorded."""
    groups = Groups.of({"shapes": shapes, "dtypes": dtypes})
    calls = map(Call.parse, *(texts_of(own).tolist() for own in groups.keys.values()))
    differ = [
        len(call.shapes) == len(call.dtypes)
        and any(call.shapes)
        and all(shape or dtype not in _LISTS for shape, dtype in zip(call.shapes, call.dtypes, strict=True))
        for call in calls
    ]
    return np.array([*differ, False], dtype=bool)[groups.of_row]


def _hashes(column: Any) -> np.ndarray:
    """A number for each text, the same in every file."""
    texts = column.categories.to_numpy(dtype=object)
    of_text = pd.util.hash_array(texts, categorize=False) if len(texts) else np.empty(0, dtype=np.uint64)
    return np.append(of_text, np.uint64(0))[column.codes]


def _mixed(numbers: list[np.ndarray]) -> np.ndarray:
    """One number for several, whose order counts."""
    found = np.zeros(len(numbers[0]), dtype=np.uint64)
    for own in numbers:
        found = (found ^ own) * _MIXED
        found ^= found >> np.uint64(29)
    return found


# Where in the model or the training loop each operator and GPU operation belongs: modules and ranges as paths.


MODULE = "nn.Module: "

_OWN_RANGES = ("nccl:", "ProfilerStep#")
"""Ranges that the profiler and process groups record about themselves: they place nothing in the model."""


class Scopes(Struct, frozen=True):
    """A rank's `nn.Module` calls and user ranges as one forest.

    Attributes:
        calls: a row for each: `start_ns`, `end_ns`, `thread`, `name`, `is_module`, and `path`, the names from the
            outermost scope down, parted by `/`.
        nesting: of `calls`.
        of_op: for each GPU operation the row of its scope: the innermost around its operator or, for a backward
            operator without one, around the forward one that created its autograd node; else around its launch; -1
            for none.
    """

    calls: pd.DataFrame
    nesting: Nesting
    of_op: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace, tree: OperatorTree) -> "Scopes":
        """Gather the scopes of a rank; steps are not scopes, so that a path is the same in every step."""
        calls = _calls(trace)
        nesting = Nesting.of(calls)
        calls = with_columns(calls, path=_paths(calls["name"].array, nesting))
        of_op = np.append(tree.inherited(nesting), [NONE, NONE])[tree.owner]
        rest = np.flatnonzero(tree.owner == NONE - 1)
        of_op[rest] = nesting.innermost_at(*launch_moments(trace, rest))
        return cls(calls, nesting, of_op)


def is_backward(tree: OperatorTree) -> np.ndarray:
    """Operators that run in the backward pass, recomputation included."""
    return tree.autograd >= PASSES.index("backward")


def _calls(trace: RankTrace) -> pd.DataFrame:
    of_steps = set(trace.steps["name"].array.dropna())
    is_module = rows_named_so(trace.frames, lambda name: name.startswith(MODULE))
    is_own = rows_named_so(trace.ranges, lambda name: name.startswith(_OWN_RANGES) or name in of_steps)
    tables = ((trace.frames, is_module), (trace.ranges, ~is_own))
    names = joined([table["name"].array[rows] for table, rows in tables])
    codes, texts = pd.factorize(np.array([name.removeprefix(MODULE) for name in names.categories], dtype=object))
    calls: dict[str, Any] = {
        name: np.concatenate([array_of(table, name)[rows] for table, rows in tables])
        for name in ("start_ns", "end_ns", "thread")
    }
    calls["name"] = pd.Categorical.from_codes(
        np.append(codes, NONE)[names.codes], categories=pd.Index(texts, dtype="str")
    )
    calls["is_module"] = np.arange(len(names)) < np.count_nonzero(is_module)
    order = outer_first(calls["start_ns"], calls["end_ns"])
    return table_of({name: values[order] for name, values in calls.items()})


def _paths(names: pd.Categorical, nesting: Nesting) -> pd.Categorical:
    """Paths, level by level; each distinct pair of parent path and name is joined once."""
    texts, code_of, paths = names.categories.tolist(), np.zeros(len(names) + 1, dtype=np.int64), {"": 0}
    for rows in rows_of_each(nesting.depth):
        pairs = code_of[nesting.parent[rows]] * len(texts) + names.codes[rows]
        distinct, place = np.unique(pairs, return_inverse=True)
        known = [*paths]
        joined = [_joined(known[pair // len(texts)], texts[pair % len(texts)]) for pair in distinct.tolist()]
        code_of[rows] = np.array([paths.setdefault(path, len(paths)) for path in joined])[place]
    return pd.Categorical.from_codes(code_of[:-1] - 1, categories=pd.Index([*paths][1:], dtype="str"))


def _joined(parent: str, name: str) -> str:
    """The path of a scope; where it is longer than a name may be, that of the scope around it."""
    path = f"{parent}/{name}" if parent else name
    return path if len(path) <= LONGEST_NAME or not parent else parent


# How each module and range of the program spends GPU time: a tree with compute, communication, copies and idle.


OUTSIDE = "(outside any module or range)"

_PARTS = ("window_ns", *breakdown.PARTS)


class Modules(breakdown.OfKnownWork):
    """One row for each rank, path and pass, in the order of the tree, what launched most GPU time first."""

    title = "Modules and ranges"
    keys = ("rank", "path", "autograd")
    columns = declared(
        rank=RANK,
        path="nn.Module calls and user ranges from the outermost down, parted by /.",
        name="Last part of the path.",
        depth="Parts before it.",
        source="module (an nn.Module's call, from recorded Python frames) or range (record_function, NVTX).",
        autograd="forward (launched inside the scope) or backward (by autograd for operators that ran inside it).",
        calls="Calls of the scope that launched GPU operations, themselves or in scopes below.",
        host_ns="Host time of its calls, in the row of the pass in which they ran.",
        gpu_ops="GPU operations that it launched, those of scopes below included.",
        gpu_own_ns=Column.time(
            "Sum of the durations of those that belong to no scope below. Over all rows, with the one "
            "outside any scope, this adds up to all GPU operations.",
            is_secondary=True,
            leads=True,
        ),
        gpu_total_ns="Sum of the durations of all of them.",
        window_ns="Sum over calls of the time from the first start to the last end of the operations that the call "
        "launched. All that runs in it counts below, whoever launched it.",
        **{name: breakdown.DEFINITIONS[name] for name in breakdown.PARTS},
    )


def modules_per_rank(trace: RankTrace, tree: OperatorTree, scopes: Scopes) -> pd.DataFrame:
    """Add up the scopes of a rank by path; the parts of each window add up to it."""
    calls, of_op = scopes.calls, scopes.of_op
    if calls.empty or trace.gpu_ops.empty:
        return pd.DataFrame()
    backward, durations = np.append(is_backward(tree), [False, False]), lengths_of(trace.gpu_ops)
    around = tree.nesting.innermost_at(array_of(calls, "start_ns"), array_of(calls, "thread"))
    placed = trace.counted & (of_op != NONE)
    by_pass = [np.flatnonzero(placed & (backward[tree.owner] == is_back)) for is_back in (False, True)]
    own_ns = [sums_at(of_op[rows], durations[rows], len(calls)) for rows in by_pass]
    gpu_ops = [np.bincount(of_op[rows], minlength=len(calls)) for rows in by_pass]
    summed = scopes.nesting.summed_up
    numbers = {"gpu_ops": [*map(summed, gpu_ops)], "gpu_own_ns": own_ns, "gpu_total_ns": [*map(summed, own_ns)]}
    launching = np.flatnonzero(np.concatenate(numbers["gpu_ops"]))
    is_back, call = np.divmod(launching, len(calls))
    autograd = pd.Categorical.from_codes(is_back, PASSES[:2])
    groups = Groups.of({"autograd": autograd, "path": calls["path"].array[call]})
    host_ns = nullable(lengths_of(calls)[call], backward[around[call]] != is_back)
    limits = zip(*(_windows(trace, scopes, rows) for rows in by_pass), strict=True)
    windows = breakdown.split(trace, *(np.concatenate(own)[launching] for own in limits))
    outside_ns = durations[trace.counted & ~placed]
    # A row for each group, and -1 for what lies outside, of which the values are appended.
    rows = np.append(np.arange(len(groups)), [NONE] if len(outside_ns) else []).astype(np.int64)
    outside = {"gpu_ops": len(outside_ns), "gpu_own_ns": outside_ns.sum(), "gpu_total_ns": outside_ns.sum()}
    of_module = array_of(calls, "is_module")[call[groups.first]]
    paths = np.append(texts_of(groups.keys["path"]), OUTSIDE)[rows].tolist()
    table = {
        "path": text_array(paths),
        "autograd": text_array(texts_of(groups.keys["autograd"].take(rows, allow_fill=True))),
        "source": text_array(np.where(of_module, "module", "range")).take(rows, allow_fill=True),
        "calls": all_known(groups.counts()).take(rows, allow_fill=True),
        "host_ns": groups.total(host_ns).take(rows, allow_fill=True),
        **{name: np.append(groups.sums(np.concatenate(own)[launching]), outside[name])[rows]
           for name, own in numbers.items()},
        **{name: all_known(groups.sums(windows[name])).take(rows, allow_fill=True) for name in _PARTS},
        "depth": np.array([path.count("/") for path in paths], dtype=np.int64),
        "name": text_array([path.rpartition("/")[2] for path in paths]),
    }  # fmt: skip
    order = _tree_order(paths, table["autograd"].tolist(), table["gpu_total_ns"].tolist())
    return picked(table_of(table), np.array(order)) if len(rows) else pd.DataFrame()


def _windows(trace: RankTrace, scopes: Scopes, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First start and last end of the GPU operations among `rows` that each scope launched, scopes below included."""
    starts, ends = arrays_of(trace.gpu_ops, "start_ns", "end_ns", rows=rows)
    limits = np.iinfo(np.int64)
    first, last = (np.full(len(scopes.calls), limit) for limit in (limits.max, limits.min))
    np.minimum.at(first, scopes.of_op[rows], starts)
    np.maximum.at(last, scopes.of_op[rows], ends)
    return scopes.nesting.gathered_up(first, np.minimum), scopes.nesting.gathered_up(last, np.maximum)


def _tree_order(paths: Sequence[str], autograd: Sequence[object], totals_ns: Sequence[int]) -> list[int]:
    """Rows of each subtree together, the heaviest subtree first, forward before backward, what is outside last."""
    weights: Counter[str] = Counter()
    for path, total_ns in zip(paths, totals_ns, strict=True):
        weights[path] += total_ns

    places: dict[str, tuple[tuple[int, str], ...]] = {"": ()}

    def place(path: str) -> tuple[tuple[int, str], ...]:
        around = []
        while path not in places:
            around.append(path)
            path = path.rpartition("/")[0]
        for one in reversed(around):
            places[one] = (*places[path], (-weights[one], one))
            path = one
        return places[path]

    return sorted(
        range(len(paths)), key=lambda row: (paths[row] == OUTSIDE, place(paths[row]), autograd[row] == "backward")
    )
