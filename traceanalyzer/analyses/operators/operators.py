"""Operators: calls, CPU time, GPU time, kernels, launches, by shape and source line."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import KIND, RANK, Result, all_known, taken
from traceanalyzer.analyses.grouping import Groups, by_category, row_blocks, sums_at
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import Nesting, range_around
from traceanalyzer.analyses.host.api_calls import into_full_queue
from traceanalyzer.analyses.kernels import CATEGORIES, MATRIX_CATEGORIES, SCORES, category, uses_tensor_cores
from traceanalyzer.analyses.operators.operator_tree import NO_LAUNCH, NO_OPERATOR, PASS_NAMES, OperatorTree, Scopes
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.meaning.columns import Adds, Column, Written, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    columns_of,
    is_name,
    lengths_of,
    mask_of,
    nowhere,
    nullable,
    picked,
    rows_named,
    rows_named_so,
    rows_where,
    sorted_by,
    table_of,
    text_array,
    texts_of,
    under_each_other,
)

# What each operator costs on host and GPU, told apart by the shapes and strides that it was called with.


COSTS: Mapping[str, Column] = declared(
    calls="Times that it ran; absent for GPU operations without an operator.",
    host_self_ns=(
        "Host time inside it but in no operator that it called; absent of what a graph replays: no host runs it."
    ),
    host_total_ns=(
        "Host time from its start to its end; calls inside another of the same name count once. Absent of what a "
        "graph replays."
    ),
    gpu_ops="GPU operations that it launched itself.",
    gpu_own_ns=Column.time(
        "Sum of their durations. Over all rows this adds up to all GPU operations, each counted once.",
        is_secondary=True,
        leads=True,
    ),
    gpu_total_ns=(
        "The same with those of the operators that it called; calls inside another of the same name count once."
    ),
)
"""Columns that add up over rows."""


class OperatorShapes(Result):
    """One row for each rank, operator, autograd pass, shapes, strides and dtypes; most GPU time of its own first."""

    title = "Operators by shape"
    is_detail = True
    keys = ("rank", "operator", "autograd", "shapes", "strides", "dtypes")
    columns = declared(
        rank=RANK,
        operator="Name; in brackets what GPU operations have instead of one.",
        autograd=(
            "forward (recorded by autograd), backward (run by it) or recompute (forward work inside the backward "
            "pass); absent for all else."
        ),
        shapes="Shapes of the arguments, as recorded; absent when they were not.",
        strides="Their strides in elements, as recorded: a transposed or sliced tensor shows here.",
        dtypes=Column.text("Their element types.", written=Written.DTYPE),
        **COSTS,
    )


_KEYS = ("operator", "autograd", "shapes", "strides", "dtypes")

_WITHOUT = {NONE: NO_LAUNCH, NONE - 1: NO_OPERATOR}
"""What stands for the operator of GPU operations without one, as the tree has them."""


def operator_shapes_per_rank(trace: RankTrace, tree: OperatorTree) -> pd.DataFrame:
    """Add up the rank's operators; GPU operations without one get rows of their own.

    The operator of a GPU operation is the innermost one around its launch, on the launch's thread.
    """
    ops, outermost = columns_of(trace.host_ops), tree.is_outermost_of_name(tree.names.codes)
    is_replayed, children_ns, lengths = _is_replayed(trace), tree.nesting.children_ns(), lengths_of(trace.host_ops)
    durations = np.where(trace.counted, lengths_of(trace.gpu_ops), 0)
    by_operator = tree.owner % (len(lengths) + 2)  # the last two stand for none
    gpu_ns = sums_at(by_operator, durations, len(lengths) + 2)
    gpu_ops = np.bincount(by_operator[trace.counted], minlength=len(gpu_ns))
    total_ns = tree.nesting.summed_up(gpu_ns[:-2])
    parts = []
    for block in row_blocks(len(lengths)):
        rows = block.start + np.flatnonzero(tree.is_counted[block] | (gpu_ops[:-2][block] > 0))
        counted, is_absent = tree.is_counted[rows], is_replayed[rows]
        own_ns = np.where(counted, lengths[rows] - children_ns[rows], 0)
        own = {
            "operator": tree.names.take(rows),
            **{name: ops[name].take(rows) for name in _KEYS[2:]},
            "autograd": pd.Categorical.from_codes(tree.autograd[rows], dtype=PASS_NAMES),
            "calls": all_known(counted.astype(np.int64)),
            "host_self_ns": nullable(own_ns, is_absent),
            "host_total_ns": nullable(np.where(counted & outermost[rows], lengths[rows], 0), is_absent),
            "gpu_ops": gpu_ops[rows],
            "gpu_own_ns": gpu_ns[rows],
            "gpu_total_ns": np.where(outermost[rows], total_ns[rows], 0),
        }
        parts.append(_totals(own, _KEYS))
    table = parts[0] if len(parts) == 1 else _totals(under_each_other(parts), _KEYS)
    if others := [owner for owner in _WITHOUT if gpu_ops[owner]]:
        columns = {"gpu_ops": gpu_ops[others], **dict.fromkeys(("gpu_own_ns", "gpu_total_ns"), gpu_ns[others])}
        rest = table_of({"operator": text_array([_WITHOUT[owner] for owner in others]), **columns})
        table = under_each_other([table, rest])
    assert table["gpu_own_ns"].sum() == durations.sum(), "own GPU time must add up to the GPU operations'"
    return sorted_by(table, "gpu_own_ns")


def _totals(table: pd.DataFrame | Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    """Rows added up by fewer keys; a column stays absent where it is absent in all of a row's parts."""
    groups = Groups.of(table, keys, by_appearance=True, with_absent=True)
    columns = columns_of(table) if isinstance(table, pd.DataFrame) else table
    return groups.table(**{name: groups.total(columns[name]) for name in COSTS})


def _is_replayed(trace: RankTrace) -> np.ndarray:
    """Operators that stand inside the call that replays the graph that they were captured into."""
    if trace.gpu_ops["captured_ns"].array.isna().all():
        return np.zeros(len(trace.host_ops), dtype=bool)
    calls = rows_where(trace.api_calls, rows_named_so(trace.api_calls, host_names.is_graph_launch))
    begins, threads = arrays_of(trace.host_ops, "start_ns", "thread")
    mask: np.ndarray = range_around(calls, threads, begins) != NONE
    return mask


# What runs: each operator's calls, host time, and the GPU time that it launched, by itself and in all.


class Operators(Result):
    """One row for each rank, operator and autograd pass; most GPU time of its own first."""

    title = "Operators"
    keys = ("rank", "operator", "autograd")
    columns = declared(
        rank=RANK,
        operator=OperatorShapes.columns["operator"],
        autograd=OperatorShapes.columns["autograd"],
        **COSTS,
    )


def operators_per_rank(_trace: object, operator_shapes: pd.DataFrame) -> pd.DataFrame:
    """Add up over shapes."""
    if not len(operator_shapes):
        return operator_shapes
    return sorted_by(_totals(operator_shapes, ["operator", "autograd"]), "gpu_own_ns")


# Which line of the user's own code each operator comes from, when Python stacks were recorded.


_LINE = re.compile(r"\S.*\(\d+\): ")

_LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages)/|^torch/|^nn\.Module: |^<|(^|/)lib/python3|^(threading|contextlib|functools"
    r"|_?weakref\w*|copy|abc|typing|enum|importlib|runpy|inspect|logging|os|socket|selectors|queue|tempfile)\b.*\.py\("
)
"""Frames of PyTorch, of installed packages and of Python itself."""


def source_lines(trace: RankTrace, tree: OperatorTree) -> pd.Categorical:
    """For each operator the innermost frame of the user's code around it: `train.py(12): forward`.

    A frame's line is the one where its function begins, as the profiler records it. A backward operator has the
    line of the forward operator that created its autograd node. Absent without stacks.
    """
    own = picked(trace.frames, mask_of(trace.frames["name"].array, _is_own))
    names = own["name"].array
    if not len(own):
        return taken(names, nowhere(len(trace.host_ops)))
    return taken(names, tree.inherited(Nesting.of(own)))


def _is_own(frame: str) -> bool:
    return bool(_LINE.match(frame)) and not _LIBRARY.search(frame)


# Which kernels each operator launched, by place in the program: the tree module → operator → kernel.


_OPERATOR_KERNELS_KEYS = ("path", "operator", "autograd", "kernel", "kind", "category")


class OperatorKernels(Result):
    """One row for each rank, path, operator, pass, kernel and category; times add up to all GPU operations'."""

    title = "Kernels by module and operator"
    is_detail = True
    keys = ("rank", *_OPERATOR_KERNELS_KEYS)
    columns = declared(
        rank=RANK,
        path="Modules and ranges around the operator, from the outermost down; absent for none.",
        operator=OperatorShapes.columns["operator"],
        autograd=OperatorShapes.columns["autograd"],
        kernel="Name of the kernel or copy.",
        kind=KIND,
        category="As in the categories table.",
        source=(
            "The user's function around the operator, with file and line; of the longest part when there are "
            "several, absent without recorded stacks."
        ),
        gpu_ops="GPU operations.",
        gpu_ns="Sum of their durations.",
    )


def operator_kernels_per_rank(
    trace: RankTrace, tree: OperatorTree, scopes: Scopes, category_of_op: pd.Categorical
) -> pd.DataFrame:
    """Add up the rank's counted GPU operations; each belongs to the innermost operator around its launch."""
    ops, rows = trace.gpu_ops, np.flatnonzero(trace.counted)
    names = trace.host_ops["name"].array.add_categories([NO_OPERATOR, NO_LAUNCH])
    operators = np.append(names.codes, len(names.categories) + np.array([NONE - 1, NONE]))
    every = {
        "path": taken(scopes.calls["path"].array, scopes.of_op),
        "operator": pd.Categorical.from_codes(operators[tree.owner], dtype=names.dtype),
        "autograd": taken(pd.Categorical.from_codes(tree.autograd, dtype=PASS_NAMES), tree.owner),
        "kernel": ops["name"].array,
        "kind": ops["kind"].array,
        "category": category_of_op,
        "source": taken(source_lines(trace, tree), tree.owner),
    }
    groups = Groups.of({name: own.take(rows) for name, own in every.items()}, by_appearance=True, with_absent=True)
    parts = groups.table(gpu_ops=groups.counts(), gpu_ns=groups.sums(lengths_of(ops)[rows]))
    parts = sorted_by(parts, "gpu_ns")  # the longest part of a row tells its source
    groups = Groups.of(parts, _OPERATOR_KERNELS_KEYS, by_appearance=True, with_absent=True)
    sums = {name: groups.sums(array_of(parts, name)) for name in ("gpu_ops", "gpu_ns")}
    return sorted_by(groups.table(**sums, source=parts["source"].array.take(groups.first)), "gpu_ns")


# How each operator's launches go: the host's time in them, the delay until the GPU begins, full queues.


class OperatorLaunches(Result):
    """One row for each rank and operator that launched GPU operations itself, most launches first."""

    title = "Launches by operator"
    is_detail = True
    keys = ("rank", "operator")
    columns = declared(
        rank=RANK,
        operator="Innermost operator around the launching call; in brackets where there is none.",
        launches="Calls that launched a GPU operation, or several as a graph.",
        gpu_ops=Column.count("GPU operations that they launched."),
        launch_ns="Host time inside those calls.",
        delay_median_ns=Column.time(
            "Median time from the launching call's start to the operation's start.", adds=Adds.DERIVED
        ),
        gpu_ns=Column.time("Sum of the operations' durations."),
        shorter_than_launch=Column.count("Operations that take the GPU less time than their call the host."),
        full_queue_calls=Column.count(
            "Calls that took over 30 µs while 900 operations or more were queued: they wait for room in the queue."
        ),
        full_queue_ns="Host time inside those.",
    )


def operator_launches_per_rank(trace: RankTrace, tree: OperatorTree) -> pd.DataFrame:
    """The rank's counted operations whose launch is in the capture."""
    ops, calls = trace.gpu_ops, trace.api_calls
    launch, starts = array_of(ops, "launch"), array_of(calls, "start_ns")
    held = np.flatnonzero(trace.counted & (launch != NONE))
    if not len(held):
        return pd.DataFrame()
    # The operator around the call: that of a replayed graph is not what captured its operations.
    replayed = np.flatnonzero(~ops["captured_ns"].array.isna() & (launch != NONE))
    owner, own = tree.owner.copy(), launch[replayed]
    owner[replayed] = tree.nesting.innermost_at(starts[own], array_of(calls, "thread")[own])
    launch, lengths, call_ns = launch[held], lengths_of(ops)[held], lengths_of(calls)
    delays = array_of(ops, "start_ns")[held] - starts[launch]
    by_op = Groups.of({"operator": taken(trace.host_ops["name"].array, owner[held])}, with_absent=True)
    # Of a call that launched several operators' operations the first one's counts.
    is_first = np.zeros(len(held), dtype=bool)
    is_first[np.unique(launch, return_index=True)[1]] = True
    is_full = into_full_queue(trace)[launch] & is_first
    names = texts_of(by_op.keys["operator"])
    table = table_of(
        {
            "operator": text_array([NO_OPERATOR if name is None else name for name in names]),
            "launches": by_op.sums(is_first),
            "launch_ns": by_op.sums(call_ns[launch] * is_first),
            "full_queue_calls": by_op.sums(is_full),
            "full_queue_ns": by_op.sums(call_ns[launch] * is_full),
            "gpu_ops": by_op.counts(),
            "delay_median_ns": np.round(by_op.medians(delays)).astype(np.int64),
            "gpu_ns": by_op.sums(lengths),
            "shorter_than_launch": by_op.sums(lengths < call_ns[launch]),
        }
    )
    table = rows_where(table, array_of(table, "launches") > 0)
    return table.sort_values(["launches", "operator"], ascending=[False, True], ignore_index=True)


# The operator calls that all ranks make as often: what a rank's host takes for them, beside the others'.


class SameCalls(Struct, frozen=True):
    """A rank's host in the operators that every rank calls as often, those aside in which the others wait.

    Attributes:
        calls: of this rank, those in which the others wait included.
        pace: how many times as long as the others' median the host takes for them; `None` where the others take none.
        covered: part of the rank's host time in operators that these take.
    """

    calls: int
    pace: float | None
    covered: float


def same_calls(operators: pd.DataFrame, rank: int) -> SameCalls | None:
    """Of the table of operators; `None` for a rank without others."""
    table = operators[operators[["calls", "host_self_ns"]].notna().all(axis=1)].astype({"operator": "object"})
    wide = table.pivot_table(
        index="operator", columns="rank", values=["calls", "host_self_ns"], aggfunc="sum", fill_value=0
    )
    if wide.empty or rank not in wide["calls"] or wide["calls"].shape[1] < 2:
        return None
    calls, times = wide["calls"], wide["host_self_ns"].astype("int64")
    is_alike = calls.eq(calls[rank], axis=0).all(axis=1)
    own, others = times.loc[is_alike, rank], times[is_alike].drop(columns=rank)
    # Whom this rank's host keeps waiting waits within operators, for most of its time in them.
    is_work = SHARE * others.median(axis=1) <= own
    own_ns, others_ns = float(own[is_work].sum()), float(others[is_work].sum().median())
    pace = own_ns / others_ns if others_ns else None
    return SameCalls(int(calls.loc[is_alike, rank].sum()), pace, own_ns / max(float(times[rank].sum()), 1.0))


# What kind of work fills the GPU: products, attention, norms, element-wise, optimizer, communication, copies.


class Categories(Result):
    """One row for each rank and category, most time first; the times add up to all GPU operations' durations."""

    title = "GPU time by category"
    keys = ("rank", "category")
    derived = {"share_pct": "gpu_ns / rank"}
    columns = declared(
        rank=RANK,
        category=f"By the operator, else by the kernel's name: {', '.join(CATEGORIES)}.",
        gpu_ops="GPU operations.",
        gpu_ns="Sum of their durations.",
        share_pct="100 · duration / that of all GPU operations of the rank.",
        tensor_core_ns="Of matrix categories: duration of the kernels whose names say that they use tensor cores.",
        no_tensor_core_ns="The same of those whose names say that they do not. The rest does not say.",
    )


def categories_per_rank(trace: RankTrace, category_of_op: pd.Categorical) -> pd.DataFrame:
    """Add up the rank's counted GPU operations by category."""
    rows = np.flatnonzero(trace.counted)
    groups, gpu_ns = Groups.of({"category": category_of_op[rows]}), lengths_of(trace.gpu_ops)[rows]
    uses = by_category(trace.gpu_ops["name"].array, uses_tensor_cores)[rows]
    is_other = ~is_name(groups.keys["category"], *MATRIX_CATEGORIES)
    times = {
        name: nullable(groups.sums(np.where(uses == answer, gpu_ns, 0)), is_other.copy())
        for name, answer in (("tensor_core_ns", True), ("no_tensor_core_ns", False))
    }
    return sorted_by(groups.table(gpu_ops=groups.counts(), gpu_ns=groups.sums(gpu_ns), **times), "gpu_ns")


_NAMES = pd.CategoricalDtype(list(CATEGORIES))


def op_categories(trace: RankTrace, tree: OperatorTree) -> pd.Categorical:
    """Category of each GPU operation."""
    keyed = {name: trace.gpu_ops[name].array for name in ("name", "kind")}
    keyed["operator"] = taken(trace.host_ops["name"].array, tree.owner)
    groups = Groups.of(keyed, with_absent=True)
    names = map(category, *(texts_of(own).tolist() for own in groups.keys.values()))
    codes = np.array([CATEGORIES.index(name) for name in names], dtype=np.int8)[groups.of_row]
    codes[_of_scores(trace, tree, pd.Categorical.from_codes(codes, dtype=_NAMES))] = CATEGORIES.index(SCORES)
    return pd.Categorical.from_codes(codes, dtype=_NAMES)


_BATCHED_PRODUCTS = ("aten::bmm", "aten::baddbmm")

_SOFTMAX = re.compile(r"aten::_(softmax|softmax_backward_data|safe_softmax|masked_softmax)$")


def _of_scores(trace: RankTrace, tree: OperatorTree, categories: pd.Categorical) -> np.ndarray:
    """GPU operations that a thread launches between two batched products, with a softmax and no other product there.

    Forward that is from queries · keys to scores · values, backward the way back.
    """
    ops = trace.host_ops
    thread, start = arrays_of(ops, "thread", "start_ns")
    launched = np.flatnonzero(tree.owner >= 0)
    owner = tree.owner[launched]
    order = np.lexsort((start[owner], thread[owner]))
    launched, owner = launched[order], owner[order]
    is_batched = rows_named(ops, "name", *_BATCHED_PRODUCTS)[owner]
    is_product = is_batched | is_name(categories, *MATRIX_CATEGORIES)[launched]
    is_softmax = rows_named_so(ops, _SOFTMAX.match)[owner]
    stretch = np.cumsum(is_product)  # a product and what follows it, up to the next one
    first = np.flatnonzero(is_product)
    is_between = is_batched[first][:-1] & is_batched[first][1:] & (np.diff(thread[owner[first]]) == 0)
    holds_softmax = np.bincount(stretch[is_softmax], minlength=len(first) + 1)[1:-1] > 0
    is_scores = np.concatenate([[False], is_between & holds_softmax, [False]])
    found: np.ndarray = launched[is_scores[stretch] & ~is_product]
    return found
