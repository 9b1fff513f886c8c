"""Modules and ranges of the program: the tree and its GPU time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import RANK, Result, joined, named
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.operators.operator_tree import PASSES, Nesting, OperatorTree
from traceanalyzer.analyses.time import breakdown
from traceanalyzer.analyses.time.breakdown import DEFINITIONS, known_only, split
from traceanalyzer.analyses.trace import launch_moments
from traceanalyzer.meaning.columns import Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import LONGEST_NAME, NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    lengths_of,
    outer_first,
    rows_named_so,
    table_of,
    text_array,
    whole,
    with_columns,
)

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
        of_operator: for each host operator the row of its scope: the innermost around it, for a backward operator
            without one that of the forward operator which created its autograd node; -1 for none.
        of_op: the same for each GPU operation, by its operator, else by the scope around its launch.
    """

    calls: pd.DataFrame
    nesting: Nesting
    of_operator: np.ndarray
    of_op: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace, tree: OperatorTree) -> "Scopes":
        """Gather the scopes of a rank; steps are not scopes, so that a path is the same in every step."""
        calls = _calls(trace)
        nesting = Nesting.of(calls)
        calls = with_columns(calls, path=_paths(calls["name"].array, nesting))
        ops = trace.host_ops
        of_operator = tree.inherited(nesting.innermost_at(array_of(ops, "start_ns"), array_of(ops, "thread")))
        return cls(calls, nesting, of_operator, _of_ops(trace, tree, nesting, of_operator))


def is_backward(tree: OperatorTree) -> np.ndarray:
    """Operators that run in the backward pass, recomputation included."""
    return tree.autograd >= PASSES.index("backward")


def _calls(trace: RankTrace) -> pd.DataFrame:
    of_steps = set(trace.steps["name"].array.dropna())
    is_module = rows_named_so(trace.frames, lambda name: name.startswith(MODULE))
    is_own = rows_named_so(trace.ranges, lambda name: name.startswith(_OWN_RANGES) or name in of_steps)
    rows = (np.flatnonzero(is_module), np.flatnonzero(~is_own))
    tables = [columns_of(frame) for frame in (trace.frames, trace.ranges)]
    columns: dict[str, Any] = {
        name: np.concatenate([table[name][own] for table, own in zip(tables, rows, strict=True)])
        for name in ("start_ns", "end_ns", "thread")
    }
    names = joined([table["name"][own] for table, own in zip(tables, rows, strict=True)])
    columns["name"] = named([name.removeprefix(MODULE) for name in names.categories.tolist()], names.codes)
    columns["is_module"] = np.arange(len(names)) < len(rows[0])
    order = outer_first(columns["start_ns"], columns["end_ns"])
    return table_of({name: values[order] for name, values in columns.items()})


def _paths(names: pd.Categorical, nesting: Nesting) -> pd.Categorical:
    """Paths, level by level; each distinct pair of parent path and name is joined once."""
    codes, texts = names.codes.astype(np.int64), names.categories.tolist()
    path_code, paths = np.full(len(codes) + 1, NONE, dtype=np.int64), [""]
    known: dict[str, int] = {}
    for level in range(nesting.depth.max(initial=-1) + 1):
        rows = np.flatnonzero(nesting.depth == level)
        pairs = path_code[nesting.parent[rows]] * len(texts) + codes[rows]
        distinct, place = np.unique(pairs, return_inverse=True)
        joined = [_joined(paths, pair // len(texts) + 1, texts[pair % len(texts)]) for pair in distinct]
        for path in joined:
            if known.setdefault(path, len(known)) == len(paths) - 1:
                paths.append(path)
        path_code[rows] = np.array([known[path] for path in joined], dtype=np.int64)[place]
    return pd.Categorical.from_codes(path_code[:-1], categories=pd.Index(paths[1:], dtype="str"))


def _joined(paths: list[str], parent: int, name: str) -> str:
    """The path of a scope; where it is longer than a name may be, that of the scope around it."""
    path = f"{paths[parent]}/{name}" if parent else name
    return path if len(path) <= LONGEST_NAME or not parent else paths[parent]


def _of_ops(trace: RankTrace, tree: OperatorTree, nesting: Nesting, of_operator: np.ndarray) -> np.ndarray:
    found = np.full(len(trace.gpu_ops), NONE, dtype=np.int64)
    by_operator = tree.owner >= 0
    found[by_operator] = of_operator[tree.owner[by_operator]]
    rest = np.flatnonzero(tree.owner == NONE - 1)
    found[rest] = nesting.innermost_at(*launch_moments(trace, rest))
    return found


# How each module and range of the program spends GPU time: a tree with compute, communication, copies and idle.


_PARTS = ("window_ns", *breakdown.PARTS)
OUTSIDE = "(outside any module or range)"

_LAUNCHED = ("gpu_ops", "gpu_own_ns", "gpu_total_ns")

_NUMBERS = (*_LAUNCHED, *_PARTS, "calls", "host_ns")

_PASSES = ("forward", "backward")


class Modules(Result):
    """One row for each rank, path and pass, in the order of the tree, what launched most GPU time first."""

    title = "Modules and ranges"
    keys = ("rank", "path", "autograd")
    columns = {
        "rank": RANK,
        "path": Column.text("nn.Module calls and user ranges from the outermost down, parted by /."),
        "name": Column.text("Last part of the path.", written=Written.KERNEL),
        "depth": Column.number("Parts before it."),
        "source": Column.text(
            "module (an nn.Module's call, from recorded Python frames) or range (record_function, NVTX)."
        ),
        "autograd": Column.text(
            "forward (launched inside the scope) or backward (by autograd for operators that ran inside it)."
        ),
        "calls": Column.count(
            "Calls of the scope that launched GPU operations, themselves or in scopes below.", is_aside=True
        ),
        "host_ns": Column.time("Host time of its calls, in the row of the pass in which they ran."),
        "gpu_ops": Column.count("GPU operations that it launched, those of scopes below included.", is_compared=False),
        "gpu_own_ns": Column.time(
            "Sum of the durations of those that belong to no scope below. Over all rows, with the one "
            "outside any scope, this adds up to all GPU operations.",
            is_secondary=True,
            leads=True,
        ),
        "gpu_total_ns": Column.time("Sum of the durations of all of them."),
        **{name: DEFINITIONS[name] for name in _PARTS},
        "window_ns": Column.time(
            "Sum over calls of the time from the first start to the last end of the operations that the call "
            "launched. All that runs in it counts below, whoever launched it.",
            better=Better.LESS,
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return known_only(table)


def per_rank(trace: RankTrace, tree: OperatorTree, scopes: Scopes) -> pd.DataFrame:
    """Add up the scopes of a rank by path; the parts of each window add up to it."""
    if scopes.calls.empty or trace.gpu_ops.empty:
        return pd.DataFrame()
    backward = np.append(is_backward(tree), False)[np.where(tree.owner >= 0, tree.owner, NONE)]
    placed = scopes.of_op != NONE
    held = trace.counted & placed
    runs_backward = _runs_backward(scopes, tree)
    passes = [_rows(trace, scopes, held & (backward == wanted), runs_backward == wanted) for wanted in (False, True)]
    parts = [own | {"autograd": [name] * len(own["path"])} for own, name in zip(passes, _PASSES, strict=True)]
    outside = trace.counted & ~placed
    if outside.any():
        parts.append(_outside(trace, outside))
    texts = {name: [text for own in parts for text in own[name]] for name in ("path", "source", "autograd")}
    numbers = {name: np.concatenate([own[name] for own in parts]) for name in _NUMBERS}
    order = _tree_order(texts["path"], texts["autograd"], numbers["gpu_total_ns"].tolist())
    told = {name: text_array([own[row] for row in order]) for name, own in texts.items()}
    known = {name: pd.arrays.IntegerArray(own[order], own[order] == NONE) for name, own in numbers.items()}
    paths = told["path"].tolist()
    return table_of(
        {
            "path": told["path"],
            **known,
            "source": told["source"],
            "autograd": told["autograd"],
            "depth": [path.count("/") for path in paths],
            "name": text_array([path.rpartition("/")[2] for path in paths]),
        }
    )


def _tree_order(names: Sequence[str], autograd: Sequence[str | None], totals_ns: Sequence[int]) -> list[int]:
    """Rows of each subtree together, the heaviest subtree first, forward before backward, what is outside last."""
    weights: dict[str, int] = {}
    for path, total in zip(names, totals_ns, strict=True):
        weights[path] = weights.get(path, 0) + total

    def place(row: int) -> tuple[object, ...]:
        parts = names[row].split("/")
        paths = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
        return (
            paths == [OUTSIDE],
            [(-weights.get(path, 0), path) for path in paths],
            autograd[row] == "backward",
        )

    return sorted(range(len(names)), key=place)


def _runs_backward(scopes: Scopes, tree: OperatorTree) -> np.ndarray:
    """Calls of scopes that themselves run inside an autograd node."""
    around = tree.nesting.innermost_at(array_of(scopes.calls, "start_ns"), array_of(scopes.calls, "thread"))
    return np.append(is_backward(tree), False)[around]


def _rows(trace: RankTrace, scopes: Scopes, held: np.ndarray, runs_here: np.ndarray) -> dict[str, Any]:
    """Rows by path for the GPU operations that `held` picks; `runs_here`: calls whose host time counts here.

    `NONE` stands for what is absent.
    """
    calls = _launched(trace, scopes, held)
    calls["host_ns"] = pd.arrays.IntegerArray(np.where(runs_here, calls["host_ns"], 0), ~runs_here)
    is_active = calls["gpu_ops"] > 0
    active = {name: values[is_active] for name, values in calls.items()}
    starts, ends = active["first_ns"], active["last_ns"]
    parts, groups = split(trace, starts, ends), Groups.of(active, ["path"])
    sums = {name: groups.sums(active[name]) for name in _LAUNCHED}
    sums |= {name: groups.sums(parts[name]) for name in _PARTS}
    source = ["module" if is_module else "range" for is_module in active["is_module"][groups.first].tolist()]
    told = {"path": groups.keys["path"].tolist(), "source": source}
    return told | sums | {"calls": groups.counts(), "host_ns": whole(groups.total(active["host_ns"]))}


def _outside(trace: RankTrace, held: np.ndarray) -> dict[str, Any]:
    total_ns = lengths_of(trace.gpu_ops)[held].sum()
    known = {"gpu_ops": np.count_nonzero(held), "gpu_own_ns": total_ns, "gpu_total_ns": total_ns}
    absent = {"source": [None], "autograd": [None]}
    return {"path": [OUTSIDE], **absent, **{name: np.array([known.get(name, NONE)]) for name in _NUMBERS}}


def _launched(trace: RankTrace, scopes: Scopes, held: np.ndarray) -> dict[str, Any]:
    """For each call of a scope what it launched, and when the first began and the last ended."""
    count = len(scopes.calls)
    owner = scopes.of_op[held]
    starts, ends = (array_of(trace.gpu_ops, name)[held] for name in ("start_ns", "end_ns"))
    own = np.zeros(count, dtype=np.int64)
    np.add.at(own, owner, ends - starts)
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, owner, starts)
    np.maximum.at(last, owner, ends)
    calls = columns_of(scopes.calls)
    return {
        "path": calls["path"],
        "is_module": calls["is_module"],
        "host_ns": calls["end_ns"] - calls["start_ns"],
        "gpu_ops": scopes.nesting.summed_up(np.bincount(owner, minlength=count)),
        "gpu_own_ns": own,
        "gpu_total_ns": scopes.nesting.summed_up(own),
        "first_ns": scopes.nesting.gathered_up(first, np.minimum),
        "last_ns": scopes.nesting.gathered_up(last, np.maximum),
    }
