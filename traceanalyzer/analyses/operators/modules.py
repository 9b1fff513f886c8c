"""Modules and ranges of the program: the tree and its GPU time."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import RANK, joined
from traceanalyzer.analyses.grouping import Groups, rows_of_each, sums_at
from traceanalyzer.analyses.host.activity import Nesting
from traceanalyzer.analyses.operators.operator_tree import PASSES, OperatorTree
from traceanalyzer.analyses.time import breakdown
from traceanalyzer.analyses.time.breakdown import DEFINITIONS, split
from traceanalyzer.analyses.trace import launch_moments
from traceanalyzer.meaning.columns import Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import LONGEST_NAME, NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    lengths_of,
    nullable,
    outer_first,
    rows_named_so,
    table_of,
    text_array,
    texts_of,
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


_PARTS = ("window_ns", *breakdown.PARTS)
OUTSIDE = "(outside any module or range)"

_NUMBERS = ("gpu_ops", "gpu_own_ns", "gpu_total_ns", *_PARTS, "calls", "host_ns")


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
        **{name: DEFINITIONS[name] for name in breakdown.PARTS},
    )


def per_rank(trace: RankTrace, tree: OperatorTree, scopes: Scopes) -> pd.DataFrame:
    """Add up the scopes of a rank by path; the parts of each window add up to it."""
    calls = scopes.calls
    if calls.empty or trace.gpu_ops.empty:
        return pd.DataFrame()
    backward, placed = np.append(is_backward(tree), [False, False]), trace.counted & (scopes.of_op != NONE)
    around = tree.nesting.innermost_at(array_of(calls, "start_ns"), array_of(calls, "thread"))
    parts = [
        _rows(trace, scopes, placed & (backward[tree.owner] == wanted), backward[around] == wanted, name)
        for name, wanted in (("forward", False), ("backward", True))
    ]
    outside = trace.counted & ~placed
    if outside.any():
        total_ns = lengths_of(trace.gpu_ops)[outside].sum()
        known = {"gpu_ops": np.count_nonzero(outside), "gpu_own_ns": total_ns, "gpu_total_ns": total_ns}
        absent = {"source": [None], "autograd": [None], **{name: [known.get(name, NONE)] for name in _NUMBERS}}
        parts.append({"path": [OUTSIDE], **absent})
    names = ("path", "source", "autograd")
    table = {name: np.concatenate([part[name] for part in parts]) for name in (*names, *_NUMBERS)}
    order = _tree_order(*(table[name].tolist() for name in ("path", "autograd", "gpu_total_ns")))
    table = {name: values[order] for name, values in table.items()}
    paths = table["path"].tolist()
    return table_of(
        {
            **{name: text_array(table[name]) for name in names},
            **{name: nullable(table[name], table[name] == NONE) for name in _NUMBERS},
            "depth": [path.count("/") for path in paths],
            "name": text_array([path.rpartition("/")[2] for path in paths]),
        }
    )


def _tree_order(paths: Sequence[str], autograd: Sequence[str | None], totals_ns: Sequence[int]) -> list[int]:
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


def _rows(trace: RankTrace, scopes: Scopes, held: np.ndarray, runs_here: np.ndarray, name: str) -> dict[str, Any]:
    """Rows by path for the GPU operations that `held` picks; `runs_here`: calls whose host time counts here."""
    count, owner, nesting = len(scopes.calls), scopes.of_op[held], scopes.nesting
    starts, ends = arrays_of(trace.gpu_ops, "start_ns", "end_ns", rows=held)
    limits = np.iinfo(np.int64)
    first, last = (np.full(count, limit) for limit in (limits.max, limits.min))
    np.minimum.at(first, owner, starts)
    np.maximum.at(last, owner, ends)
    own_ns = sums_at(owner, ends - starts, count)
    gpu_ops, total_ns = nesting.summed_up(np.bincount(owner, minlength=count)), nesting.summed_up(own_ns)
    calls = np.flatnonzero(gpu_ops)
    paths = scopes.calls["path"].array[calls]
    first, last = (nesting.gathered_up(*each)[calls] for each in ((first, np.minimum), (last, np.maximum)))
    groups = Groups.of({"path": paths})
    host_ns = groups.sums(np.where(runs_here, lengths_of(scopes.calls), 0)[calls])
    is_module = array_of(scopes.calls, "is_module")[calls[groups.first]]
    numbers = {"gpu_ops": gpu_ops[calls], "gpu_own_ns": own_ns[calls], "gpu_total_ns": total_ns[calls]}
    return {
        "path": texts_of(groups.keys["path"]),
        "source": np.where(is_module, "module", "range").astype(object),
        "autograd": np.full(len(groups), name, dtype=object),
        **{name: groups.sums(values) for name, values in (numbers | split(trace, first, last)).items()},
        "calls": groups.counts(),
        "host_ns": np.where(groups.any(runs_here[calls]), host_ns, NONE),
    }
