"""Where in the model or the training loop each operator and GPU operation belongs: modules and ranges as paths."""

from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import joined, named
from traceanalyzer.analyses.operators.nesting import Nesting
from traceanalyzer.analyses.operators.operator_tree import PASSES, OperatorTree
from traceanalyzer.analyses.trace.launch_moments import launch_moments
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import outer_first, rows_named_so
from traceanalyzer.model.schema import LONGEST_NAME, NONE
from traceanalyzer.model.tables import array_of, column_of, columns_of, table_of, with_columns

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
        calls = with_columns(calls, path=_paths(column_of(calls, "name"), nesting))
        of_operator = _of_operators(trace, tree, nesting)
        return cls(calls, nesting, of_operator, _of_ops(trace, tree, nesting, of_operator))


def is_backward(tree: OperatorTree) -> np.ndarray:
    """Operators that run in the backward pass, recomputation included."""
    return tree.autograd >= PASSES.index("backward")


def _calls(trace: RankTrace) -> pd.DataFrame:
    of_steps = set(column_of(trace.steps, "name").dropna())
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


def _of_operators(trace: RankTrace, tree: OperatorTree, nesting: Nesting) -> np.ndarray:
    ops = trace.host_ops
    return tree.inherited(nesting.innermost_at(array_of(ops, "start_ns"), array_of(ops, "thread")))


def _of_ops(trace: RankTrace, tree: OperatorTree, nesting: Nesting, of_operator: np.ndarray) -> np.ndarray:
    found = np.full(len(trace.gpu_ops), NONE, dtype=np.int64)
    by_operator = tree.owner >= 0
    found[by_operator] = of_operator[tree.owner[by_operator]]
    rest = np.flatnonzero(tree.owner == NONE - 1)
    found[rest] = nesting.innermost_at(*launch_moments(trace, rest))
    return found
