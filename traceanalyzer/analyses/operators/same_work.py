"""Which GPU operations do the same work: only their durations can be compared, between ranks, steps and GPUs."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import taken
from traceanalyzer.analyses.grouping import Groups, number_in_group
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.kinds.operators import Call
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, texts_of

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
