"""How each module and range of the program spends GPU time: a tree with compute, communication, copies and idle."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.names import ModulesColumn
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.operators.scopes import Scopes, is_backward
from traceanalyzer.analyses.time import breakdown
from traceanalyzer.analyses.time.breakdown import DEFINITIONS, known_only, split
from traceanalyzer.meaning.columns import Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of, text_array, whole
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, columns_of, table_of

_PARTS = ("window_ns", *breakdown.PARTS)
OUTSIDE = "(outside any module or range)"

_LAUNCHED = ("gpu_ops", "gpu_own_ns", "gpu_total_ns")

_NUMBERS = (*_LAUNCHED, *_PARTS, "calls", "host_ns")

_PASSES = ("forward", "backward")


class Modules(Result[ModulesColumn]):
    """One row for each rank, path and pass, in the order of the tree, what launched most GPU time first."""

    title: ClassVar[str] = "Modules and ranges"
    keys: ClassVar[tuple[str, ...]] = ("rank", "path", "autograd")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
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


def across(parts: Mapping[int, pd.DataFrame]) -> Modules:
    """The ranks' rows under each other."""
    return Modules(stack(parts, tuple(Modules.columns)))


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
    found: np.ndarray = np.append(is_backward(tree), False)[around]
    return found


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
