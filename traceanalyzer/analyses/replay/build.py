"""A rank's piece of the graph, from its events."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.host.idle_causes import blocking
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.phases.op_phases import NAMES as PHASES
from traceanalyzer.analyses.replay.event_waits import event_waits, touching, without_room
from traceanalyzer.analyses.replay.explained import explained
from traceanalyzer.analyses.replay.host_chain import host_chain
from traceanalyzer.analyses.replay.piece import Piece
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, columns_of, picked, table_of, under_each_other, with_columns
from traceanalyzer.selection import before_pauses

RETURNS_BEFORE_NS = 100_000
"""A blocking copy's call returns at most so long before the copy's recorded end."""


def piece_of(
    trace: RankTrace, calls: pd.DataFrame, tree: OperatorTree, phases: np.ndarray, ring: np.ndarray,
    loops: pd.Categorical, work: np.ndarray,
) -> Piece:  # fmt: skip
    """Build it; `calls` are the rank's communication calls with their row in `gpu_ops`, `ring` those of a ring.

    `loops` names for each GPU operation the loop that launched it, `work` are the numbers of `same_work`.
    """
    why = _why_no_host(trace)
    if why:  # nor is there anything to follow from a launch then
        trace = replace(trace, api_calls=trace.api_calls.iloc[:0], gpu_ops=trace.gpu_ops.assign(launch=NONE))
    ops = with_columns(_operations(trace, calls, tree, phases, ring, work), loop=_in_order(loops, trace))
    chain = host_chain(trace, ops)
    waits, denied = event_waits(trace, ops)
    launch = chain.launch_row[array_of(ops, "api_call")]
    host = _named(chain.host, ops, launch)
    columns = {name: values for name, values in columns_of(ops).items() if name != "api_call"}
    piece = Piece(table_of({**columns, "launch": launch}), host, chain.segments, waits, chain.blocks,
                  chain.meetings, denied, _steps(trace), why_no_host=why)  # fmt: skip
    lag_ns = explained(piece).lag_ns - 3_000
    more = without_room(piece.ops, lag_ns)
    if not len(waits) or not waits["is_recorded"].all():
        touched = touching(piece.ops, lag_ns)
        more = under_each_other([touched, picked(more, ~np.isin(more["target"], touched["target"]))])
    if more.empty:
        return piece
    return replace(piece, waits=under_each_other([waits, more]))


def _steps(trace: RankTrace) -> pd.DataFrame:
    steps = trace.steps
    if not len(steps):
        begins = array_of(trace.gpu_ops, "start_ns")[:1]
        return table_of(
            {"step": np.full(len(begins), NONE), "begin_ns": begins, "is_paused": np.zeros(len(begins), dtype=bool)}
        )
    begins = array_of(steps, "host_start_ns")
    return table_of({"step": array_of(steps, "step"), "begin_ns": begins, "is_paused": before_pauses(steps)})


def _operations(
    trace: RankTrace,
    calls: pd.DataFrame,
    tree: OperatorTree,
    phases: np.ndarray,
    ring: np.ndarray,
    work: np.ndarray,
) -> pd.DataFrame:
    """Operations stream by stream in order of start."""
    ops = columns_of(trace.gpu_ops)
    order = np.argsort(ops["stream"], kind="stable")
    call, collective = (np.full(len(order), NONE, dtype=np.int64) for _ in range(2))
    collectives = pd.Categorical(calls["collective"] if len(calls) else [])
    if len(calls):
        call[array_of(calls, "gpu_op")] = array_of(calls, "call")
        collective[array_of(calls, "gpu_op")] = collectives.codes
    call = call[order]
    owner = np.where(tree.owner >= 0, tree.owner, NONE)[order]
    held = {name: ops[name].take(order) for name in ("stream", "start_ns", "kind", "name", "launch")}
    numbers = np.append(array_of(trace.steps, "step"), NONE)
    ends = _ends_with_their_calls(trace)[order]
    return table_of(
        {
            "row": order,
            "stream": held["stream"],
            "start_ns": held["start_ns"],
            "duration_ns": ends - held["start_ns"],
            "kind": held["kind"],
            "name": held["name"],
            "work": work[order],
            "operator": _of_owners(trace.host_ops["name"], owner),
            "shapes": _of_owners(trace.host_ops["shapes"], owner),
            "phase": pd.Categorical.from_codes(phases[order], categories=list(PHASES)),
            "step": numbers[trace.op_step[order]],
            "call": call,
            "collective": pd.Categorical.from_codes(collective[order], dtype=collectives.dtype),
            "is_ring": np.isin(call, ring),
            "api_call": held["launch"],
        }
    )


def _in_order(loops: pd.Categorical, trace: RankTrace) -> pd.Categorical:
    return loops.take(np.argsort(array_of(trace.gpu_ops, "stream"), kind="stable"))


def _of_owners(column: pd.Series, owner: np.ndarray) -> pd.Categorical:
    values: Any = column.array
    return pd.Categorical.from_codes(np.append(values.codes, NONE)[owner], dtype=values.dtype)


def _ends_with_their_calls(trace: RankTrace) -> np.ndarray:
    """Ends of the operations; a blocking copy's is its call's when that returned a moment before.

    A copy from pageable memory returns when its last bytes are staged, some 20 µs before they have arrived: it is the
    copy that blocked the host all the same.
    """
    ops, calls = trace.gpu_ops, trace.api_calls
    ends, launch = array_of(ops, "end_ns"), array_of(ops, "launch")
    is_blocking = np.zeros(len(calls) + 1, dtype=bool)
    is_blocking[blocking(trace)[0]] = True
    returned = np.append(array_of(calls, "end_ns"), 0)[launch]
    is_early = is_blocking[launch] & (launch != NONE) & (returned < ends) & (ends - returned <= RETURNS_BEFORE_NS)
    made: np.ndarray = np.where(is_early & (returned > array_of(ops, "start_ns")), returned, ends)
    return made


def _named(host: pd.DataFrame, ops: pd.DataFrame, launch: np.ndarray) -> pd.DataFrame:
    """Host stretches with the operator, phase and loop of what they launch."""
    held = np.flatnonzero(launch != NONE)
    columns = {}
    for name in ("operator", "phase", "loop"):
        values: Any = column_of(ops, name)
        codes = np.full(len(host), NONE, dtype=np.int64)
        codes[launch[held]] = values.codes[held]
        columns[name] = pd.Categorical.from_codes(codes, dtype=values.dtype)
    return with_columns(host, **columns)


def _why_no_host(trace: RankTrace) -> str:
    if trace.gpu_ops.empty:
        return "no GPU operations"
    if trace.meta.format == "xplane":
        return "waits of JAX's hosts for their GPUs leave no events"
    return "" if (trace.gpu_ops["launch"] != NONE).any() else "the capture has no launches"
