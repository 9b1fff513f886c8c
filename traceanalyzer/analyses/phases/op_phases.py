"""Which phase of training launched each GPU operation: forward, backward, optimizer, data, communication."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.host_activity import innermost_at, range_around
from traceanalyzer.analyses.host.host_names import PHASES, UNATTRIBUTED
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import known_of, rows_named_so, whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, picked, under_each_other, with_columns

NAMES = (*PHASES, UNATTRIBUTED)

UNKNOWN = len(PHASES)
"""Position of an operation that nothing attributes."""

_TIMES = ("start_ns", "end_ns", "thread")

FORWARD, BACKWARD = PHASES.index("forward"), PHASES.index("backward")


def op_phases(trace: RankTrace) -> np.ndarray:
    """For each GPU operation the position of its phase in `NAMES`.

    The first of these that speaks decides:

    1. the innermost range named after a phase, or autograd node, around the launch on its thread; a forward range
       inside a node is recomputation, hence backward;
    2. the innermost phase range of another thread at that time: the main thread's `backward` around autograd's;
    3. forward, when an operator around the launch made a node that the backward pass of the capture ran.

    Otherwise, and without a recorded launch, the operation is unattributed.
    """
    phase = np.full(len(trace.gpu_ops), UNKNOWN, dtype=np.int64)
    launch = array_of(trace.gpu_ops, "launch")
    has_launch = launch != NONE
    if has_launch.any():
        calls, back = np.unique(launch[has_launch], return_inverse=True)
        phase[has_launch] = phases_of_calls(trace, calls)[back]
    return phase


def phases_of_calls(trace: RankTrace, calls: np.ndarray) -> np.ndarray:
    """The same for rows of `api_calls`."""
    times = array_of(trace.api_calls, "start_ns")[calls]
    return phases_of_moments(trace, array_of(trace.api_calls, "thread")[calls], times)


def phases_of_moments(trace: RankTrace, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The same for moments on the host, each with its thread."""
    named = _phase_ranges(trace)
    phase = _of_own_thread(trace, named, threads, times)
    open_calls = np.flatnonzero(phase == UNKNOWN)
    around = innermost_at(array_of(named, "start_ns"), array_of(named, "end_ns"), times[open_calls])
    codes = np.append(array_of(named, "phase"), UNKNOWN)
    phase[open_calls] = codes[around]
    open_calls = np.flatnonzero(phase == UNKNOWN)
    is_forward = range_around(_forward_operators(trace), threads[open_calls], times[open_calls]) != NONE
    phase[open_calls[is_forward]] = FORWARD
    return phase


def _phase_ranges(trace: RankTrace) -> pd.DataFrame:
    """Ranges (and the loader's operator, which older versions record as one) that name a phase."""
    frames = [_named(frame) for frame in (trace.ranges, trace.host_ops)]
    return under_each_other(frames)


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    names: Any = column_of(frame, "name")
    known = [_code(name) if "::" not in name or name.startswith("FSDP") else UNKNOWN
             for name in names.categories.tolist()]  # fmt: skip
    phase = np.array([*known, UNKNOWN], dtype=np.int64)[names.codes]
    held = np.flatnonzero(phase != UNKNOWN)
    return with_columns(picked(frame, held, _TIMES), phase=phase[held])


def _code(name: str) -> int:
    phase = host_names.phase(name)
    return UNKNOWN if phase is None else PHASES.index(phase)


def _of_own_thread(trace: RankTrace, named: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    is_node = rows_named_so(trace.host_ops, host_names.is_autograd_node)
    nodes = with_columns(picked(trace.host_ops, is_node, _TIMES), phase=BACKWARD)
    events = under_each_other([named, nodes])
    codes = np.append(array_of(events, "phase"), UNKNOWN)
    phase = codes[range_around(events, threads, times)]
    in_node = range_around(nodes, threads, times) != NONE
    return np.where(in_node & (phase == FORWARD), BACKWARD, phase)


def _forward_operators(trace: RankTrace) -> pd.DataFrame:
    """Operators that made a node which autograd ran.

    Every operator notes the number that the next node will get, whether it makes one or not; the last one that
    notes a number made its node.
    """
    ops = trace.host_ops
    has_sequence = known_of(ops, "sequence")
    is_autograds = whole_of(ops, "forward_thread", 0) != 0
    # Plain collectives make none, and come last where gradients are reduced after the backward pass.
    is_collective = rows_named_so(ops, lambda name: name.startswith("c10d::"))
    rows = np.flatnonzero(has_sequence & ~is_autograds & ~is_collective)
    sequence, thread = whole_of(ops, "sequence"), array_of(ops, "thread")
    by_number = rows[np.lexsort((rows, sequence[rows], thread[rows]))]
    is_last = (np.diff(sequence[by_number]) != 0) | (np.diff(thread[by_number]) != 0)
    makers = np.sort(by_number[np.append(is_last, True)[: len(by_number)]])
    run = sequence[has_sequence & is_autograds]
    return picked(ops, makers[np.isin(sequence[makers], run)], _TIMES)
