"""Where the operator trees of two runs part: the calls below which one dispatched something else than the other."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import numpy as np
import pandas as pd

from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.meaning.vocabulary import MOST_PIECES
from traceanalyzer.model import RankTrace

COLUMNS = {
    "path": "Operators around the place, outermost first; numbers of instances are stars.",
    "places": "Places of the step where the same parts in the same way.",
    "base": "What the base called there instead, in order; empty where it called nothing.",
    "other": "What the other run called there.",
    "base_calls": "Operators among them and below, all places together.",
    "other_calls": "The same of the other run.",
    "base_gpu_ns": "Time of the GPU operations that they launched, all places together.",
    "other_gpu_ns": "The same of the other run.",
    "base_host_ns": "Host time of them, all places together.",
    "other_host_ns": "The same of the other run.",
    "change_gpu_ns": "other_gpu_ns − base_gpu_ns.",
}

_NUMBER = re.compile(r"(?<=[#.])\d+|\d+$")


@dataclass(slots=True)
class _Node:
    """One operator of a step with what is below it."""

    name: str
    host_ns: int = 0
    gpu_ns: int = 0
    calls: int = 1
    children: "list[_Node]" = field(default_factory=list)


def tree_diff(base: RankTrace, other: RankTrace, steps: tuple[int | None, int | None] = (None, None)) -> pd.DataFrame:
    """A row for each way in which the trees part, with `COLUMNS`; largest difference of GPU time first.

    Both trees are of one step: threads in the order in which they begin. Calls are aligned by name, in order, level by
    level; what has a partner is looked into, what has none is where the trees part. What is below equal calls and is
    equal is in no row.

    Args:
        base: a rank of the base.
        other: the rank of the other run that does the same.
        steps: which step of each; the first complete one by default.

    Raises:
        InputError: a trace has no operators or no complete step.
        UsageError: it has no such step.
    """
    trees = [_forest(trace, step) for trace, step in zip((base, other), steps, strict=True)]
    rows = [_row(path, one, two) for path, one, two in _parting(trees[0], trees[1], ())]
    if not rows:
        return pd.DataFrame(columns=list(COLUMNS))
    table = pd.DataFrame(rows).groupby(["path", "base", "other"], sort=False, as_index=False).sum()
    table["change_gpu_ns"] = table["other_gpu_ns"] - table["base_gpu_ns"]
    order = table["change_gpu_ns"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order, list(COLUMNS)].reset_index(drop=True)


def _forest(trace: RankTrace, number: int | None) -> list[_Node]:
    """The operators that a step called, as trees."""
    ops = trace.host_ops
    if ops.empty:
        raise InputError(f"rank {trace.rank} has no operators: they are recorded by the PyTorch profiler")
    start, end = _span(trace, number)
    tree = OperatorTree.of(trace)
    inside = ((ops["start_ns"] >= start) & (ops["start_ns"] < end)).to_numpy()
    own = np.zeros(len(ops), dtype=np.int64)
    is_owned = tree.owner >= 0
    durations = (trace.gpu_ops["end_ns"] - trace.gpu_ops["start_ns"]).to_numpy()
    np.add.at(own, tree.owner[is_owned], durations[is_owned])
    gpu, calls = tree.nesting.summed_up(own), tree.nesting.summed_up(np.ones(len(ops), dtype=np.int64))
    lengths = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    names = ops["name"].astype(str).to_numpy()
    rows = np.flatnonzero(inside)
    nodes = {row: _Node(names[row], int(lengths[row]), int(gpu[row]), int(calls[row])) for row in rows.tolist()}
    tops: dict[int, list[_Node]] = {}
    threads = ops["thread"].to_numpy()
    for row, node in nodes.items():
        parent = int(tree.nesting.parent[row])
        siblings = nodes[parent].children if parent in nodes else tops.setdefault(int(threads[row]), [])
        siblings.append(node)
    return [node for own_nodes in tops.values() for node in own_nodes]


def _span(trace: RankTrace, number: int | None) -> tuple[int, int]:
    """Host time of the step."""
    steps = trace.steps
    chosen = steps[steps["step"] == number] if number is not None else steps[~steps["is_partial"]]
    if chosen.empty and number is not None:
        raise UsageError(f"rank {trace.rank} has no step {number}; there are {', '.join(map(str, steps['step']))}")
    if chosen.empty:
        raise InputError(f"rank {trace.rank} has no complete step to look at")
    row = chosen.iloc[0]
    return int(row["host_start_ns"]), int(row["host_end_ns"])


def _parting(
    base: Sequence[_Node], other: Sequence[_Node], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Sequence[_Node], Sequence[_Node]]]:
    """Stretches of siblings without a partner, with their path."""
    one_names, other_names = ([_NUMBER.sub("*", node.name) for node in nodes] for nodes in (base, other))
    matcher = SequenceMatcher(None, one_names, other_names, autojunk=False)
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag != "equal":
            yield path, base[first:last], other[begin:end]
            continue
        for one, two in zip(base[first:last], other[begin:end], strict=True):
            if one.children or two.children:
                yield from _parting(one.children, two.children, (*path, _NUMBER.sub("*", one.name)))


def _row(path: tuple[str, ...], base: Sequence[_Node], other: Sequence[_Node]) -> dict[str, object]:
    sums = {
        f"{side}_{what}": sum(getattr(node, what) for node in nodes)
        for what in ("calls", "gpu_ns", "host_ns")
        for side, nodes in (("base", base), ("other", other))
    }
    return {"path": " > ".join(path), "places": 1, "base": _named(base), "other": _named(other), **sums}


def _named(nodes: Sequence[_Node]) -> str:
    """`aten::mm, aten::add ×2, …`: in order of their first call."""
    counts = Counter(_NUMBER.sub("*", node.name) for node in nodes)
    labels = [f"{name} ×{count}" if count > 1 else name for name, count in counts.items()]
    more = f", and {len(labels) - MOST_PIECES} more" if len(labels) > MOST_PIECES else ""
    return ", ".join(labels[:MOST_PIECES]) + more
