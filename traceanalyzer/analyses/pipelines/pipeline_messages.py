"""Which way each message of a pipeline goes: activations forward, gradients backward."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, is_any, stack
from traceanalyzer.analyses.communication.group_names import EMBEDDING, MODEL, PIPELINE
from traceanalyzer.analyses.communication.group_roles import role_of_messages
from traceanalyzer.analyses.names import PipelineMessagesColumn
from traceanalyzer.analyses.phases.op_phases import NAMES
from traceanalyzer.analyses.pipelines import pipeline_shape
from traceanalyzer.analyses.pipelines.stage_ranges import BACKWARD, FORWARD, action_at, actions
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, only, rows_where, table_of, without_rows

_OF_STAGES = (None, PIPELINE, EMBEDDING, MODEL)
"""What groups are for whose messages can be stages'."""


class PipelineMessages(Result[PipelineMessagesColumn]):
    """One row for each message that a rank of a pipeline sends or receives, in order of its calls."""

    title: ClassVar[str] = "Messages between pipeline stages"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "call", "is_send", "peer", "message")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "call": Column.ident("Position among the rank's communication operations."),
        "message": Column.ident("Position among the call's messages."),
        "step": Column.ident("Step that launched the call; absent for none."),
        "launch_ns": Column.moment("When the host began to launch the call; absent where the trace does not tell."),
        "start_ns": Column.moment("Start of the call on the GPU."),
        "end_ns": Column.moment("End of the call on the GPU."),
        "is_send": Column.flag("Whether the rank sends it."),
        "peer": Column.ident("Global rank at the other end."),
        "direction": Column.text(
            "forward (an activation) or backward (a gradient): of a send by the schedule's range around it, "
            "else by the compute launched last before it (of several at once, or after passes of both directions, by "
            "what else goes to the peer); of a receive only by such a range. Absent where nothing tells."
        ),
    }


def per_rank(trace: RankTrace, calls: pd.DataFrame, groups: pd.DataFrame, phase_of_op: np.ndarray) -> pd.DataFrame:
    """The rank's messages to named peers, but for those that go round (context parallel) or between neighbours."""
    own = pipeline_shape.point_to_point(calls)
    own = rows_where(own, ~own["call"].isin(in_ring(calls, groups))) if len(own) else own
    if own.empty:
        return pd.DataFrame()
    moves = pipeline_shape.transfers(own.assign(rank=trace.rank)).drop(columns="rank")
    rows = array_of(moves, "gpu_op")
    launched_last, is_mixed = _phases_before(trace, rows, phase_of_op)
    told = _of_several(moves, pd.Series(launched_last, dtype="object").where(moves["is_send"], None), is_mixed)
    direction = _by_ranges(trace, rows).fillna(told).to_numpy()
    launch = array_of(trace.gpu_ops, "launch")[rows]
    launched_ns = array_of(trace.api_calls, "start_ns").take(np.maximum(launch, 0)) if len(trace.api_calls) else launch
    return moves.assign(message=moves.groupby("call").cumcount(), direction=direction,
                        launch_ns=pd.arrays.IntegerArray(launched_ns.astype(np.int64), launch == NONE))  # fmt: skip


def across(parts: Mapping[int, pd.DataFrame]) -> PipelineMessages:
    """The ranks' messages under each other."""
    return PipelineMessages(stack(parts, tuple(PipelineMessages.columns)))


def in_launch_order(trace: RankTrace, transfers: np.ndarray) -> pd.DataFrame:
    """The rank's launched operations in the order of their launches, with their row in `gpu_ops` as `gpu_op`."""
    count = len(trace.gpu_ops)
    ops = only(trace.gpu_ops, ["start_ns", "end_ns", "kind", "launch"]).assign(
        step_row=trace.op_step, gpu_op=np.arange(count), is_transfer=np.isin(np.arange(count), transfers)
    )
    held = rows_where(ops, (ops["launch"] != NONE) & trace.counted)
    return held.sort_values(["launch", "start_ns"], kind="stable", ignore_index=True)


def _of_several(moves: pd.DataFrame, told: pd.Series, is_mixed: np.ndarray) -> pd.Series:
    """Directions where sends that can be of two passes have those of their peers.

    A call that sends an activation and a gradient follows a pass each way: the compute launched last tells that of one
    of them only. So it is where one of the two passes has nothing to send, as those of the first and the last stage.
    What else goes to the same peer tells, where that goes one way.
    """
    is_alone = moves["is_send"] & (moves["is_send"].groupby(moves["call"]).transform("sum") == 1)
    is_certain = is_alone & ~is_mixed
    if is_certain.equals(moves["is_send"]):
        return told
    ways = table_of({"peer": moves["peer"], "way": told})[is_certain].drop_duplicates()
    known = moves["peer"].map(ways.drop_duplicates("peer", keep=False).set_index("peer")["way"]).astype("object")
    known = known.where(known.notna() | ~is_alone, told)
    return told.where(is_certain | ~moves["is_send"], known.where(known.notna(), None))


def in_ring(calls: pd.DataFrame, groups: pd.DataFrame) -> np.ndarray:
    """Numbers of a rank's calls whose messages go round, or both ways, or are of a group that is for something else."""
    own = pipeline_shape.point_to_point(calls)
    return array_of(own, "call")[_is_ring(own, groups)] if len(own) else np.empty(0, dtype=np.int64)


def _is_ring(own: pd.DataFrame, groups: pd.DataFrame) -> np.ndarray:
    keys = ["group", "group_ranks"]
    texts = only(groups, keys).astype("object").fillna("") if len(groups) else without_rows(keys)
    rings = {
        tuple(key)
        for key, uses in groups.groupby([texts[name] for name in keys])
        if role_of_messages(uses) not in _OF_STAGES
    }
    wanted = only(own, keys).astype("object").fillna("")
    return np.array([key in rings for key in wanted.itertuples(index=False, name=None)], dtype=bool)


def _by_ranges(trace: RankTrace, rows: np.ndarray) -> pd.Series:
    """What the schedule's range around each launch says; absent without."""
    found = actions(trace)
    found = found[~found["is_compute"]].reset_index(drop=True)
    launch = array_of(trace.gpu_ops, "launch")[rows]
    if found.empty:
        return pd.Series([None] * len(rows), dtype="object")
    times = np.where(launch != NONE, array_of(trace.api_calls, "start_ns")[launch], -1)
    names = np.array([*found["what"], None], dtype=object)
    return pd.Series(names[action_at(found, times)], dtype="object")


def _phases_before(trace: RankTrace, rows: np.ndarray, phase_of_op: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Forward or backward, as the compute launched last before each operation is; `None` before any.

    And whether compute of both lies between the operation and the one of `rows` before it (before whose like where
    there is none between).
    """
    ops = in_launch_order(trace, rows)
    phase = np.array(NAMES, dtype=object)[phase_of_op[ops["gpu_op"]]]
    is_work = np.isin(phase, [FORWARD, BACKWARD]) & is_any(ops["kind"], "compute")
    names = pd.Series(np.where(is_work, phase, np.array(None, dtype=object)), dtype="object").ffill()
    by_op = pd.Series(names.to_numpy(), index=ops["gpu_op"])
    found = by_op.reindex(rows)
    phases: np.ndarray = found.where(found.notna(), None).to_numpy(dtype=object)
    return phases, _are_mixed(ops, phase, is_work).reindex(rows, fill_value=False).to_numpy()


def _are_mixed(ops: pd.DataFrame, phase: np.ndarray, is_work: np.ndarray) -> pd.Series:
    """Of each transfer whether forward and backward compute lie between it and the transfer before, by `gpu_op`."""
    at = np.flatnonzero(ops["is_transfer"])
    done = np.stack([np.cumsum(is_work & (phase == name))[at] for name in (FORWARD, BACKWARD)])
    made = np.diff(done, axis=1, prepend=0) > 0
    is_mixed = pd.Series(made.all(axis=0)).astype("boolean").where(made.any(axis=0)).ffill().fillna(value=False)
    return pd.Series(is_mixed.to_numpy(dtype=bool), index=array_of(ops, "gpu_op")[at])
