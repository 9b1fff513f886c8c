"""Operators: calls, CPU time, GPU time, kernels, launches, by shape and source line."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import KIND, RANK, Result, percent, taken
from traceanalyzer.analyses.grouping import Groups, by_category, row_blocks, sums_at
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.launches import into_full_queue
from traceanalyzer.analyses.kernels.kernel_names import CATEGORIES, MATRIX_CATEGORIES, category, uses_tensor_cores
from traceanalyzer.analyses.operators.modules import Scopes
from traceanalyzer.analyses.operators.operator_tree import NO_LAUNCH, NO_OPERATOR, PASS_NAMES, Nesting, OperatorTree
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    lengths_of,
    mask_of,
    picked,
    rows_named_so,
    rows_where,
    sorted_by,
    table_of,
    text_array,
    texts_of,
    under_each_other,
    whole,
)

# What each operator costs on host and GPU, told apart by the shapes and strides that it was called with.


COSTS: Mapping[str, Column] = {
    "calls": Column.count("Times that it ran; absent for GPU operations without an operator.", is_aside=True),
    "host_self_ns": Column.time(
        "Host time inside it but in no operator that it called; absent of what a graph replays: no host runs it."
    ),
    "host_total_ns": Column.time(
        "Host time from its start to its end; calls inside another of the same name count once. Absent of what a "
        "graph replays."
    ),
    "gpu_ops": Column.count("GPU operations that it launched itself.", is_compared=False),
    "gpu_own_ns": Column.time(
        "Sum of their durations. Over all rows this adds up to all GPU operations, each counted once.",
        is_secondary=True,
        leads=True,
    ),
    "gpu_total_ns": Column.time(
        "The same with those of the operators that it called; calls inside another of the same name count once."
    ),
    "backward_gpu_ns": Column.time(
        "GPU time of the autograd nodes that these calls created; absent when none is recorded."
    ),
}
"""Columns that add up over rows."""


class OperatorShapes(Result):
    """One row for each rank, operator, autograd pass, shapes, strides and dtypes; most GPU time of its own first."""

    title = "Operators by shape"
    is_detail = True
    keys = ("rank", "operator", "autograd", "shapes", "strides", "dtypes")
    columns = {
        "rank": RANK,
        "operator": Column.text("Name; in brackets what GPU operations have instead of one."),
        "autograd": Column.text(
            "forward (recorded by autograd), backward (run by it) or recompute (forward work inside the "
            "backward pass); absent for all else."
        ),
        "shapes": Column.text("Shapes of the arguments, as recorded; absent when they were not."),
        "strides": Column.text("Their strides in elements, as recorded: a transposed or sliced tensor shows here."),
        "dtypes": Column.text("Their element types.", written=Written.DTYPE),
        **COSTS,
    }


def operator_shapes_per_rank(trace: RankTrace, tree: OperatorTree) -> pd.DataFrame:
    """Add up the rank's operators; GPU operations without one get rows of their own.

    The operator of a GPU operation is the innermost one around its launch, on the launch's thread.
    """
    table = columns_of(_operator_shapes_operators(trace, tree))
    durations = np.where(trace.counted, lengths_of(trace.gpu_ops), 0)
    others = _without_operator(durations, trace.counted, tree)
    own_ns = np.append(table["gpu_own_ns"], np.array(others["gpu_own_ns"], dtype=np.int64))
    assert int(own_ns.sum()) == int(durations.sum()), "own GPU time must add up to the GPU operations'"
    order = np.argsort(-own_ns, kind="stable")
    rows = np.append(np.arange(len(own_ns) - len(others["operator"])), np.full(len(others["operator"]), NONE))[order]
    operators = np.append(texts_of(table["operator"]), np.array(others["operator"], dtype=object))[order]
    return table_of(
        {
            "operator": text_array(operators),
            **{name: table[name].take(rows, allow_fill=True) for name in _OPERATOR_SHAPES_KEYS[1:]},
            **{name: _with_others(table[name], others.get(name), len(own_ns)).take(order) for name in COSTS},
        }
    )


def _with_others(values: Any, others: list[int] | None, count: int) -> pd.arrays.IntegerArray:
    """So many integers: these, and below them others, which are absent where there are none."""
    missing = count - len(values)
    is_absent = np.zeros(len(values), dtype=bool) if isinstance(values, np.ndarray) else values.isna()
    return pd.arrays.IntegerArray(
        np.append(whole(values), np.array(others or [NONE] * missing, dtype=np.int64)),
        np.append(is_absent, np.full(missing, others is None)),
    )


def summed(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Rows added up by fewer keys; a column stays absent where it is absent in all of a row's parts."""
    return sorted_by(_totals(table, keys), "gpu_own_ns")


def _totals(table: pd.DataFrame | Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    return Groups.of(table, keys, by_appearance=True, with_absent=True).totals(table, list(COSTS))


def _operator_shapes_operators(trace: RankTrace, tree: OperatorTree) -> pd.DataFrame:
    costs, ops = _Costs.of(trace, tree), columns_of(trace.host_ops)
    named = {"operator": tree.names, **{name: ops[name] for name in _OPERATOR_SHAPES_KEYS[2:]}}
    parts = []
    for rows in row_blocks(len(trace.host_ops)):
        held = rows.start + np.flatnonzero(tree.is_counted[rows] | (costs.gpu_ops[rows] > 0))
        own = {name: values.take(held) for name, values in named.items()} | costs.at(held)
        own["autograd"] = pd.Categorical.from_codes(tree.autograd[held], dtype=PASS_NAMES)
        parts.append(_totals(own, _OPERATOR_SHAPES_KEYS))
    return parts[0] if len(parts) == 1 else _totals(under_each_other(parts), _OPERATOR_SHAPES_KEYS)


_OPERATOR_SHAPES_KEYS = ("operator", "autograd", "shapes", "strides", "dtypes")


@dataclass(frozen=True, slots=True)
class _Costs:
    """What it takes to say of any operators their columns `COSTS`: an element for each operator."""

    is_counted: np.ndarray
    is_outermost: np.ndarray
    is_replayed: np.ndarray
    starts_ns: np.ndarray
    ends_ns: np.ndarray
    children_ns: np.ndarray
    gpu_ops: np.ndarray
    gpu_own_ns: np.ndarray
    gpu_total_ns: np.ndarray
    backward_ns: pd.arrays.IntegerArray

    @classmethod
    def of(cls, trace: RankTrace, tree: OperatorTree) -> "_Costs":
        ops = trace.host_ops
        gpu_ops, gpu_own = tree.gpu_sums(trace)
        gpu_total = tree.nesting.summed_up(gpu_own)
        return cls(
            tree.is_counted,
            tree.is_outermost_of_name(tree.names.codes),
            _is_replayed(trace),
            array_of(ops, "start_ns"),
            array_of(ops, "end_ns"),
            tree.nesting.children_ns(),
            gpu_ops,
            gpu_own,
            gpu_total,
            _backward(tree, gpu_total),
        )

    def at(self, rows: np.ndarray) -> dict[str, Any]:
        """The columns of these operators."""
        counted, outermost, is_replayed = self.is_counted[rows], self.is_outermost[rows], self.is_replayed[rows]
        length = self.ends_ns[rows] - self.starts_ns[rows]
        own_ns = np.where(counted, length - self.children_ns[rows], 0)
        total_ns = np.where(counted & outermost, length, 0)
        return {
            "calls": counted.astype(np.int64),
            "host_self_ns": pd.arrays.IntegerArray(own_ns, is_replayed),
            "host_total_ns": pd.arrays.IntegerArray(total_ns, is_replayed.copy()),
            "gpu_ops": self.gpu_ops[rows],
            "gpu_own_ns": self.gpu_own_ns[rows],
            "backward_gpu_ns": self.backward_ns[rows],
            "gpu_total_ns": np.where(outermost, self.gpu_total_ns[rows], 0),
        }


def _is_replayed(trace: RankTrace) -> np.ndarray:
    """Operators that stand inside the call that replays the graph that they were captured into."""
    mask = np.zeros(len(trace.host_ops), dtype=bool)
    if trace.gpu_ops["captured_ns"].array.isna().all():
        return mask
    calls = rows_where(trace.api_calls, rows_named_so(trace.api_calls, host_names.is_graph_launch))
    begins, threads = (array_of(trace.host_ops, name) for name in ("start_ns", "thread"))
    for thread, own in calls.groupby("thread"):
        row = np.searchsorted(array_of(own, "start_ns"), begins, side="right") - 1
        mask |= (row >= 0) & (threads == thread) & (begins < array_of(own, "end_ns")[row])
    return mask


def _backward(tree: OperatorTree, gpu_total: np.ndarray) -> pd.arrays.IntegerArray:
    """For each operator the GPU time of the autograd nodes that it created."""
    # A node is recorded twice, as the engine's call and as the function inside it: the outer one counts.
    outer = (tree.forward != NONE) & (tree.nesting.handed_down(tree.forward != NONE, including_self=False) == NONE)
    total = np.zeros(len(gpu_total), dtype=np.int64)
    np.add.at(total, tree.forward[outer], gpu_total[outer])
    linked = np.zeros(len(gpu_total), dtype=bool)
    linked[tree.forward[outer]] = True
    return pd.arrays.IntegerArray(total, ~linked)


def _without_operator(durations: np.ndarray, counted: np.ndarray, tree: OperatorTree) -> dict[str, list[Any]]:
    """Rows of the counted GPU operations that no operator launched: their names, number and time."""
    masks = {name: counted & (tree.owner == code) for name, code in ((NO_LAUNCH, NONE), (NO_OPERATOR, NONE - 1))}
    held = {name: mask for name, mask in masks.items() if mask.any()}
    spent = [int(durations[mask].sum()) for mask in held.values()]
    operations = [int(mask.sum()) for mask in held.values()]
    return {"operator": [*held], "gpu_ops": operations, "gpu_own_ns": spent, "gpu_total_ns": spent}


# What runs: each operator's calls, host time, and the GPU time that it launched, by itself and in all.


class Operators(Result):
    """One row for each rank, operator and autograd pass; most GPU time of its own first."""

    title = "Operators"
    keys = ("rank", "operator", "autograd")
    columns = {
        "rank": RANK,
        "operator": OperatorShapes.columns["operator"],
        "autograd": OperatorShapes.columns["autograd"],
        **COSTS,
        "gpu_share_pct": Column.share("100 · own GPU time / that of all rows of the rank."),
        "host_share_pct": Column.share("100 · own host time / that of all rows of the rank."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        by_rank = table.groupby("rank")
        return table.assign(
            gpu_share_pct=percent(table["gpu_own_ns"], by_rank["gpu_own_ns"].transform("sum")),
            host_share_pct=percent(table["host_self_ns"], by_rank["host_self_ns"].transform("sum")),
        )


def operators_per_rank(_trace: object, operator_shapes: pd.DataFrame) -> pd.DataFrame:
    """Add up over shapes."""
    return summed(operator_shapes, ["operator", "autograd"]) if len(operator_shapes) else operator_shapes


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
    frames, ops = trace.frames, trace.host_ops
    own = picked(frames, mask_of(frames["name"].array, _is_own))
    names = own["name"].array
    if not len(own):
        return pd.Categorical.from_codes(np.full(len(ops), NONE), dtype=names.dtype)
    around = Nesting.of(own).innermost_at(array_of(ops, "start_ns"), array_of(ops, "thread"))
    return pd.Categorical.from_codes(np.append(names.codes, NONE)[tree.inherited(around)], dtype=names.dtype)


def _is_own(frame: str) -> bool:
    return bool(_LINE.match(frame)) and not _LIBRARY.search(frame)


# Which kernels each operator launched, by place in the program: the tree module → operator → kernel.


_OPERATOR_KERNELS_KEYS = ("path", "operator", "autograd", "kernel", "kind")


class OperatorKernels(Result):
    """One row for each rank, path, operator, autograd pass and kernel; the times add up to all GPU operations'."""

    title = "Kernels by module and operator"
    is_detail = True
    keys = ("rank", *_OPERATOR_KERNELS_KEYS)
    columns = {
        "rank": RANK,
        "path": Column.text("Modules and ranges around the operator, from the outermost down; absent for none."),
        "operator": OperatorShapes.columns["operator"],
        "autograd": OperatorShapes.columns["autograd"],
        "kernel": Column.text("Name of the kernel or copy.", written=Written.KERNEL),
        "kind": KIND,
        "category": Column.text("As in the categories table."),
        "source": Column.text(
            "The user's function around the operator, with file and line; of the longest part when there are "
            "several, absent without recorded stacks."
        ),
        "gpu_ops": Column.count("GPU operations.", is_compared=False),
        "gpu_ns": Column.time("Sum of their durations.", leads=True),
    }


def operator_kernels_per_rank(
    trace: RankTrace, tree: OperatorTree, scopes: Scopes, category_of_op: pd.Categorical
) -> pd.DataFrame:
    """Add up the rank's counted GPU operations; each belongs to the innermost operator around its launch."""
    rows = np.flatnonzero(trace.counted)
    columns = {name: values.take(rows) for name, values in _columns(trace, tree, scopes, category_of_op).items()}
    by_source = Groups.of(columns, [*columns], by_appearance=True, with_absent=True)
    gpu_ops, gpu_ns = by_source.counts(), by_source.sums(lengths_of(trace.gpu_ops)[rows])
    order = np.argsort(-gpu_ns, kind="stable")
    columns = {name: values.take(order) for name, values in by_source.keys.items()}
    groups = Groups.of(columns, _OPERATOR_KERNELS_KEYS, by_appearance=True, with_absent=True)
    sums = {"gpu_ops": groups.sums(gpu_ops[order]), "gpu_ns": groups.sums(gpu_ns[order])}
    longest = {name: columns[name].take(groups.first) for name in ("category", "source")}
    return sorted_by(table_of({**groups.keys, **sums, **longest}), "gpu_ns")


def _columns(trace: RankTrace, tree: OperatorTree, scopes: Scopes, category: pd.Categorical) -> dict[str, Any]:
    """What each GPU operation is told apart by."""
    ops = trace.gpu_ops
    return {
        "path": taken(scopes.calls["path"].array, scopes.of_op),
        "operator": _operator_kernels_operators(trace, tree),
        "autograd": taken(pd.Categorical.from_codes(tree.autograd, dtype=PASS_NAMES), tree.owner),
        "kernel": ops["name"].array,
        "kind": ops["kind"].array,
        "category": category,
        "source": taken(source_lines(trace, tree), tree.owner),
    }


def _operator_kernels_operators(trace: RankTrace, tree: OperatorTree) -> pd.Categorical:
    names = trace.host_ops["name"].array.add_categories([NO_LAUNCH, NO_OPERATOR])
    last = len(names.categories) - 1
    found = np.append(names.codes, NONE)[np.where(tree.owner >= 0, tree.owner, len(names))]
    codes = np.where(tree.owner == NONE, last - 1, np.where(tree.owner < NONE, last, found))
    return pd.Categorical.from_codes(codes, dtype=names.dtype)


# How each operator's launches go: the host's time in them, the delay until the GPU begins, full queues.


class OperatorLaunches(Result):
    """One row for each rank and operator that launched GPU operations itself, most launches first."""

    title = "Launches by operator"
    is_detail = True
    keys = ("rank", "operator")
    columns = {
        "rank": RANK,
        "operator": Column.text("Innermost operator around the launching call; in brackets where there is none."),
        "launches": Column.count("Calls that launched a GPU operation, or several as a graph."),
        "gpu_ops": Column.count("GPU operations that they launched."),
        "launch_ns": Column.time("Host time inside those calls."),
        "launch_median_ns": Column.time("Median of it.", adds=Adds.DERIVED),
        "delay_median_ns": Column.time(
            "Median time from the launching call's start to the operation's start.", adds=Adds.DERIVED
        ),
        "delay_max_ns": Column.time("Longest.", adds=Adds.EXTREME),
        "gpu_ns": Column.time("Sum of the operations' durations."),
        "shorter_than_launch": Column.count("Operations that take the GPU less time than their call the host."),
        "full_queue_calls": Column.count(
            "Calls that took over 30 µs while 900 operations or more were queued: they wait for room in the queue."
        ),
        "full_queue_ns": Column.time("Host time inside those."),
    }


def operator_launches_per_rank(trace: RankTrace, tree: OperatorTree) -> pd.DataFrame:
    """The rank's counted operations whose launch is in the capture."""
    held = trace.counted & (array_of(trace.gpu_ops, "launch") != NONE)
    if not held.any():
        return pd.DataFrame()
    launch, starts, ends = (array_of(trace.gpu_ops, name)[held] for name in ("launch", "start_ns", "end_ns"))
    begun, done = (array_of(trace.api_calls, name) for name in ("start_ns", "end_ns"))
    call_ns, lengths, delay = done - begun, ends - starts, starts - begun[launch]
    operators = trace.host_ops["name"].array
    owner = np.maximum(_around_call(trace, tree, held), NONE)
    name_of = np.append(operators.codes.astype(np.int64), NONE)[owner]
    by_op = Groups.of_numbers(name_of)
    # Of an operation of several operators' calls the first one's counts.
    calls, first = np.unique(launch, return_index=True)
    by_call = Groups.of_numbers(by_op.of_row[first])
    is_full = into_full_queue(trace)[calls]
    names = np.array([*operators.categories.tolist(), NO_OPERATOR], dtype=object)[name_of[by_op.first]]
    with_calls = by_op.of_row[first][by_call.first]
    made = table_of(
        {
            "operator": names[with_calls],
            "launches": by_call.counts(),
            "gpu_ops": by_op.counts()[with_calls],
            "launch_ns": by_call.sums(call_ns[calls]),
            "launch_median_ns": np.round(by_call.medians(call_ns[calls])).astype(np.int64),
            "delay_median_ns": np.round(by_op.medians(delay)).astype(np.int64)[with_calls],
            "delay_max_ns": by_op.largest(delay)[with_calls],
            "gpu_ns": by_op.sums(lengths)[with_calls],
            "shorter_than_launch": by_op.sums((lengths < call_ns[launch]).astype(np.int64))[with_calls],
            "full_queue_calls": by_call.sums(is_full.astype(np.int64)),
            "full_queue_ns": by_call.sums(np.where(is_full, call_ns[calls], 0)),
        },
    )
    by_letters = np.unique(names[with_calls], return_inverse=True)[1]
    return picked(made, np.lexsort((by_letters, -by_call.counts())))


def _around_call(trace: RankTrace, tree: OperatorTree, held: np.ndarray) -> np.ndarray:
    """Row of the operator around the call: that of a replayed graph is not what captured its operations."""
    ops = trace.gpu_ops
    rows = np.flatnonzero(held & ~ops["captured_ns"].array.isna())
    owner = tree.owner.copy()
    if len(rows):
        launch = array_of(ops, "launch")[rows]
        starts, threads = (array_of(trace.api_calls, name)[launch] for name in ("start_ns", "thread"))
        owner[rows] = tree.nesting.innermost_at(starts, threads)
    return owner[held]


# The operator calls that all ranks make as often: what a rank's host takes for them, beside the others'.


_WAITS = 2.0
"""Times this rank's host time in an operator: others that take longer wait in it."""


class SameCalls(Struct, frozen=True):
    """A rank's host in the operators that every rank calls as often, those aside in which the others wait.

    Attributes:
        calls: of this rank by operator, those in which the others wait included.
        own_ns: its host time in each operator itself.
        others_ns: the same of the other ranks, a column each.
        covered: part of the rank's host time in operators that these take.
    """

    calls: pd.Series
    own_ns: pd.Series
    others_ns: pd.DataFrame
    covered: float

    @property
    def others_sum_ns(self) -> float:
        """The others' median of all of them together."""
        return float(self.others_ns.sum().median())

    @property
    def pace(self) -> float | None:
        """How many times as long as the others' the rank's host takes for them; `None` where the others take none."""
        others = self.others_sum_ns
        return float(self.own_ns.sum()) / others if others else None


def same_calls(operators: pd.DataFrame, rank: int, among: Collection[int] | None = None) -> SameCalls | None:
    """Of the table of operators; all ranks are those `among`, if given. `None` for a rank without others."""
    table = operators if among is None else rows_where(operators, operators["rank"].isin(among))
    table = table[table["calls"].notna() & table["host_self_ns"].notna()].astype(
        {"operator": "object", "calls": "int64", "host_self_ns": "int64"}
    )
    wide = table.groupby(["operator", "rank"])[["calls", "host_self_ns"]].sum().unstack("rank", fill_value=0)  # noqa: PD010
    if wide.empty or rank not in wide["calls"] or wide["calls"].shape[1] < 2:
        return None
    alike = wide[wide["calls"].eq(wide["calls"][rank], axis=0).all(axis=1)]
    own, others = alike["host_self_ns"][rank], alike["host_self_ns"].drop(columns=rank)
    # Whom this rank's host keeps waiting waits within operators: for a queue that is full, or for a copy.
    is_work = others.median(axis=1) <= _WAITS * own
    whole = float(wide["host_self_ns"][rank].sum())
    return SameCalls(alike["calls"][rank], own[is_work], others[is_work], float(own[is_work].sum()) / max(whole, 1.0))


# What kind of work fills the GPU: products, attention, norms, element-wise, optimizer, communication, copies.


class Categories(Result):
    """One row for each rank and category, most time first; the times add up to all GPU operations' durations."""

    title = "GPU time by category"
    keys = ("rank", "category")
    columns = {
        "rank": RANK,
        "category": Column.text(f"By the operator, else by the kernel's name: {', '.join(CATEGORIES)}."),
        "gpu_ops": Column.count("GPU operations.", is_compared=False),
        "gpu_ns": Column.time("Sum of their durations.", leads=True),
        "share_pct": Column.share("100 · duration / that of all GPU operations of the rank."),
        "tensor_core_ns": Column.time(
            "Of matrix categories: duration of the kernels whose names say that they use tensor cores."
        ),
        "no_tensor_core_ns": Column.time("The same of those whose names say that they do not. The rest does not say."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(share_pct=percent(table["gpu_ns"], table.groupby("rank")["gpu_ns"].transform("sum")))


def categories_per_rank(trace: RankTrace, category_of_op: pd.Categorical) -> pd.DataFrame:
    """Add up the rank's counted GPU operations by category."""
    rows = np.flatnonzero(trace.counted)
    if not len(rows):
        return pd.DataFrame()
    ops, of_op, count = trace.gpu_ops, category_of_op.codes[rows], len(category_of_op.categories)
    gpu_ops = np.bincount(of_op, minlength=count)
    held = np.flatnonzero(gpu_ops)
    gpu_ns = lengths_of(ops)[rows]
    uses = by_category(ops["name"].array, uses_tensor_cores)[rows]
    is_other = ~np.isin(category_of_op.categories.to_numpy(dtype=object), MATRIX_CATEGORIES)
    columns = {
        "category": pd.Categorical.from_codes(held, dtype=category_of_op.dtype),
        "gpu_ns": sums_at(of_op, gpu_ns, count)[held],
    }
    for column, answer in (("tensor_core_ns", True), ("no_tensor_core_ns", False)):
        told = sums_at(of_op, np.where(uses == answer, gpu_ns, 0), count)
        columns[column] = pd.arrays.IntegerArray(told[held], is_other[held])
    return sorted_by(table_of({**columns, "gpu_ops": gpu_ops[held]}), "gpu_ns")


_NAMES = pd.CategoricalDtype(list(CATEGORIES))


def op_categories(trace: RankTrace, tree: OperatorTree) -> pd.Categorical:
    """Category of each GPU operation."""
    keyed = {name: trace.gpu_ops[name].array for name in ("name", "kind")}
    keyed["operator"] = taken(trace.host_ops["name"].array, tree.owner)
    groups = Groups.of(keyed, list(keyed), with_absent=True)
    names = map(category, *(texts_of(own).tolist() for own in groups.keys.values()))
    places = {name: place for place, name in enumerate(CATEGORIES)}
    codes = np.array([places[name] for name in names], dtype=np.int64)
    return pd.Categorical.from_codes(codes[groups.of_row], dtype=_NAMES)
