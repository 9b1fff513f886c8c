"""Loops of launches: the same few operators launched over and over."""

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import RANK, Result, taken
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host.activity import climbed
from traceanalyzer.analyses.host.cpu_time import looked_at
from traceanalyzer.analyses.host.idle import blocking
from traceanalyzer.analyses.intervals import Intervals
from traceanalyzer.analyses.kernels import MATRIX_CATEGORIES
from traceanalyzer.analyses.operators.operator_tree import OperatorTree, Scopes, is_backward
from traceanalyzer.meaning.columns import Column, Written, declared
from traceanalyzer.meaning.vocabulary import COMM
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    is_name,
    lengths_of,
    nowhere,
    rows_named,
    rows_named_so,
    sorted_by,
    table_of,
    text_array,
    whole,
)

# Where a sequence repeats itself: stretches in which the same few codes come over and over.


LEAST_TURNS = 8
"""Of the same codes in a row: fewer are the layers of a small model, or chance."""

_SHORT = 16
"""Every period up to this is looked for; of longer ones those at which many triples come again."""

_LONGEST, _MOST = 512, 8


def runs_of(codes: np.ndarray, groups: np.ndarray) -> list[tuple[int, int, int]]:
    """Stretches of eight turns and more within a group: start, end and period, in order.

    Codes in it are the same as the one a `period` before. Shorter periods come first, and none lies in another.
    """
    is_free = np.ones(len(codes), dtype=bool)
    found = []
    for period in _periods(codes):
        same = (codes[period:] == codes[:-period]) & (groups[period:] == groups[:-period])
        same &= is_free[period:] & is_free[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
        bounds = np.column_stack([edges[::2], edges[1::2] + period])
        for start, end in bounds[bounds[:, 1] - bounds[:, 0] >= LEAST_TURNS * period].tolist():
            is_free[start:end] = False
            found.append((start, start + (end - start) // period * period, period))
    return sorted(found)


def _periods(codes: np.ndarray) -> list[int]:
    """Short ones, and the distances at which most triples come again, in order."""
    longer: list[int] = []
    if len(codes) > LEAST_TURNS * _SHORT:
        size = int(codes.max()) + 1
        triples = (codes[:-2] * size + codes[1:-1]) * size + codes[2:]
        order = np.argsort(triples, kind="stable")
        apart = np.diff(order)[triples[order][1:] == triples[order][:-1]]
        counts = np.bincount(apart[(apart > _SHORT) & (apart <= _LONGEST)], minlength=1)
        often = np.argsort(-counts, kind="stable")[:_MOST]
        longer = sorted(often[counts[often] > 0].tolist())
    return [*range(1, _SHORT + 1), *longer]


# What a host launches in loops: the same few operators over and over, tensor by tensor or sample by sample.


_OWN = ("aten::", "torch.distributed.ddp.reducer::")

_MOST_LISTED = 4
"""Operators that a loop's name lists."""


class LaunchLoops(Result):
    """One row for each rank and loop, most host time first."""

    title = "Loops of launches"
    is_detail = True
    keys = ("rank", "loop")
    columns = declared(
        rank=RANK,
        loop=Column.text(
            "The operators (without them, the kernels) of one turn, behind the module or range that it begins in.",
            written=Written.KERNEL,
        ),
        range="That module or range; absent outside of any.",
        runs=Column.count("How often the loop ran: eight turns in a row and more, within a step and a thread."),
        turns=Column.count("Turns of all runs."),
        launches="Calls in them that launched a GPU operation.",
        host_ns="Time from each run's first launch to its last one, without calls that block.",
        gpu_ns=Column.time("Sum of the launched operations' durations."),
        blocking_calls=Column.count("Calls in the runs that block the host until the GPU is done."),
        of_sizes=Column.flag(
            "Turns launch grids, or copy bytes, of different sizes: as for one tensor after the other."
        ),
        has_products="A turn multiplies matrices, or convolves, as a layer does.",
        of_uploads=Column.flag("Most of its launches copy to the GPU."),
        of_autograd=Column.flag("Autograd's backward pass launches it, not a loop of the program."),
    )


class LoopRun(Struct, frozen=True):
    """A loop's turns in a row.

    Attributes:
        loop: position of its name.
        rows: what it launched, in order: rows of `gpu_ops`.
        calls: of these the first of each operator's call; so many of them (`period`) are a turn.
    """

    loop: int
    rows: np.ndarray
    calls: np.ndarray
    period: int

    @property
    def turns(self) -> int:
        """How many."""
        return len(self.calls) // self.period


class Loops(Struct, frozen=True):
    """A rank's loops.

    Attributes:
        of_op: for each GPU operation of the second turn and later ones the name of its loop; absent for most.
        runs: all of them.
    """

    of_op: pd.Categorical
    runs: tuple[LoopRun, ...]

    @classmethod
    def of(cls, trace: RankTrace, tree: OperatorTree, scopes: Scopes) -> "Loops":
        """Find them among all launches of the capture; those that communicate are none."""
        is_comm, launch = rows_named(trace.gpu_ops, "kind", COMM.kind), trace.launch
        launched = np.append(array_of(trace.api_calls, "start_ns"), np.iinfo(np.int64).min)[launch]
        order, groups = _in_order(trace)
        # An operator that launches for many tensors at once is one call.
        around = _outer(trace, tree)
        owner = around[order]
        leads = np.flatnonzero(np.append(True, (owner[1:] != owner[:-1]) | (owner[1:] < 0))[: len(order)])
        operators, kernels = taken(trace.host_ops["name"].array, around), trace.gpu_ops["name"].array
        texts = [*operators.categories.tolist(), *kernels.categories.tolist()]
        of_kernel = kernels.codes.astype(np.int64) + len(operators.categories)
        codes = np.where(operators.codes == NONE, of_kernel, operators.codes)
        ends, of_op, runs = np.append(leads, len(order)), nowhere(len(codes)), []
        places: dict[str, int] = {}
        known: dict[tuple[str, tuple[int, ...]], int] = {}
        for start, end, period in runs_of(codes[order[leads]], groups[leads]):
            calls, rows = order[leads[start:end]], order[leads[start] : ends[end]]
            if is_comm[rows].any():
                continue
            body, where = tuple(codes[calls[:period]].tolist()), _name_of_scope(scopes, int(calls[0]))
            key = (where, _turned(body))
            if key not in known:
                known[key] = places.setdefault(_joined(where, [texts[code] for code in body]), len(places))
            runs.append(LoopRun(known[key], rows, calls, period))
            of_op[rows[np.searchsorted(launched[rows], launched[calls[period]]) :]] = known[key]
        return cls(pd.Categorical.from_codes(of_op, categories=pd.Index([*places], dtype="str")), tuple(runs))


def per_rank(
    trace: RankTrace, loops: Loops, scopes: Scopes, tree: OperatorTree, category_of_op: pd.Categorical
) -> pd.DataFrame:
    """The rank's counted runs, added up by loop."""
    runs = [run for run in loops.runs if trace.counted[run.rows].all()]
    if not runs:
        return pd.DataFrame()
    ops, calls = trace.gpu_ops, trace.api_calls
    blocked_calls, blocked = blocking(trace)
    waits = Intervals.of(blocked, array_of(calls, "end_ns")[blocked_calls])
    launch, lengths, sizes = array_of(ops, "launch"), lengths_of(ops), _sizes(trace)
    begins = array_of(calls, "start_ns")[launch[[run.rows[0] for run in runs]]]
    ends = array_of(calls, "end_ns")[launch[[run.rows[-1] for run in runs]]]
    begins, ends = looked_at(trace, begins, ends)
    blocked = np.sort(blocked)
    is_product, is_upload = is_name(category_of_op, *MATRIX_CATEGORIES), is_name(ops["direction"].array, "HtoD")
    backward = np.append(is_backward(tree), [False, False])
    sums = {
        "turns": [run.turns for run in runs],
        "launches": [len(run.rows) for run in runs],
        "host_ns": ends - begins - waits.covered_ns(begins, ends),
        "gpu_ns": [lengths[run.rows].sum() for run in runs],
        "blocking_calls": np.searchsorted(blocked, ends) - np.searchsorted(blocked, begins),
    }
    flags = {
        "of_sizes": [_differ(sizes[run.calls], run.period) for run in runs],
        "of_uploads": [2 * is_upload[run.rows].sum() > len(run.rows) for run in runs],
        "of_autograd": backward[tree.owner[[run.calls[0] for run in runs]]],
        "has_products": [is_product[run.rows].any() for run in runs],
    }
    numbers = np.array([run.loop for run in runs])
    groups = Groups.of_numbers(numbers)
    ranges = text_array([_name_of_scope(scopes, int(run.calls[0])) or None for run in runs])
    table = {
        "loop": text_array(loops.of_op.categories.to_numpy(dtype=object)[numbers[groups.first]]),
        "range": groups.first_known(ranges),
        "runs": groups.counts(),
        **{name: groups.sums(np.array(own)) for name, own in sums.items()},
        **{name: groups.any(np.array(own)) for name, own in flags.items()},
    }
    return sorted_by(table_of(table), "host_ns")


def _in_order(trace: RankTrace) -> tuple[np.ndarray, np.ndarray]:
    """GPU operations that the host launched itself, thread by thread in order of launch; a number for thread and step.

    Of several operations of one call, a graph's, the first stands for all.
    """
    launch = trace.launch
    rows = np.flatnonzero(launch != NONE)
    rows = rows[np.unique(launch[rows], return_index=True)[1]]
    thread, start = arrays_of(trace.api_calls, "thread", "start_ns", rows=launch[rows])
    order = np.lexsort((start, thread))
    thread, step = thread[order], trace.op_step[rows[order]]
    is_new = np.append(False, (thread[1:] != thread[:-1]) | (step[1:] != step[:-1]))[: len(rows)]
    return rows[order], np.cumsum(is_new)


def _outer(trace: RankTrace, tree: OperatorTree) -> np.ndarray:
    """For each GPU operation the operator around its launch: of PyTorch's own the one that the program called."""
    is_own = np.append(rows_named_so(trace.host_ops, lambda name: name.startswith(_OWN)), False)
    parent, owner = np.append(tree.nesting.parent, NONE), tree.owner
    top = climbed(np.maximum(owner, NONE), parent, lambda _, at: ~(is_own[at] & is_own[parent[at]]))
    return np.where(owner >= 0, top, owner)


def _turned(body: tuple[int, ...]) -> tuple[int, ...]:
    """The same for every turn of it: a loop may seem to begin in the middle."""
    return min(body[place:] + body[:place] for place in range(len(body)))


def _joined(where: str, texts: list[str]) -> str:
    each = list(dict.fromkeys(texts))
    more = f" and {len(each) - _MOST_LISTED} more" if len(each) > _MOST_LISTED else ""
    return f"{where}{': ' if where else ''}{', '.join(each[:_MOST_LISTED])}{more}"


def _name_of_scope(scopes: Scopes, row: int) -> str:
    place = int(scopes.of_op[row])
    return "" if place == NONE else str(scopes.calls["name"].array[place])


def _sizes(trace: RankTrace) -> np.ndarray:
    """A number for each GPU operation by its grid; of copies by their bytes."""
    grids = trace.gpu_ops["grid"].array
    bytes_ = whole(trace.gpu_ops["bytes"].array, 0)
    return np.where(grids.codes == NONE, bytes_, NONE - 1 - grids.codes.astype(np.int64))


def _differ(codes: np.ndarray, period: int) -> bool:
    """Whether what a place of the turn launches differs from turn to turn."""
    whole = codes[: len(codes) // period * period].reshape(-1, period)
    return bool((whole != whole[0]).any())
