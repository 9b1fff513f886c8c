"""Which ranks form a pipeline, in which order, and which way each message goes."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import CALL, RANK, Result
from traceanalyzer.analyses.communication.clocks import connected
from traceanalyzer.analyses.communication.groups import EMBEDDING, MODEL, PIPELINE, role_of_messages
from traceanalyzer.analyses.communication.matching import messages_of
from traceanalyzer.analyses.phases import PHASE_NAMES
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.meaning.columns import Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    nullable,
    rows_named,
    rows_where,
    table_of,
)
from traceanalyzer.selection import step_at

LEAST_SPOKES = 3
"""The middle of three stages has two neighbours that exchange with nobody else; no stage has three."""


def is_of_hub(pairs: pd.DataFrame) -> pd.Series:
    """Mask of the rows of `pairs` (ranks `one` and `other`) between a hub and one that exchanges with hubs alone.

    A hub is a rank with which at least three such ranks exchange messages: several are servers of the same ranks.
    """
    ends = pairs[["one", "other"]]
    if ends.empty:
        return pd.Series(data=False, index=ends.index)
    both = pd.concat([ends, ends.rename(columns={"one": "other", "other": "one"})]).drop_duplicates()
    count = both.groupby("one")["other"].nunique()
    may_be = both["one"].map(count) >= LEAST_SPOKES
    is_with_hubs = both["other"].map(count) >= LEAST_SPOKES
    spokes = rows_where(both, ~may_be & is_with_hubs.groupby(both["one"]).transform("all"))
    found = spokes.groupby("other")["one"].nunique()
    hubs, around = found.index[found >= LEAST_SPOKES], spokes["one"].unique()
    of_one, of_other = (
        ends[end].isin(hubs) & ends[far].isin(around) for end, far in (("one", "other"), ("other", "one"))
    )
    return of_one | of_other


FORWARD, BACKWARD = "forward", "backward"
INPUTS, WEIGHTS = "backward of inputs", "backward of weights"

_WORK = {"F": FORWARD, "B": BACKWARD, "I": INPUTS, "W": WEIGHTS}

_SENT = {"SEND_F": FORWARD, "RECV_F": FORWARD, "SEND_B": BACKWARD, "RECV_B": BACKWARD}

# PyTorch's schedules run a list of actions such as 2F0: the third stage's forward of the first microbatch; some of them
# hold a forward and a backward pass, `(3F1;4B0)OVERLAP_F_B`.
_ACTION = (
    r"^PP:\(?(?P<stage>\d+)(?P<what>[A-Z_]+?)(?P<microbatch>\d+)"
    r"(?:;(?P<back_stage>\d+)(?P<back>[BI])(?P<back_microbatch>\d+)\)OVERLAP_F_B)?$"
)


def actions(trace: RankTrace) -> pd.DataFrame:
    """A row for each action that the rank's schedule took: `start_ns`, `end_ns`, `stage`, `what`, `microbatch`.

    `what` is forward, backward or one of its halves, of compute and of messages alike; `is_compute` tells them apart.
    `back`, `back_stage` and `back_microbatch` are of the backward pass in the same action, where there is one.
    Empty where no schedule names its actions.
    """
    names = trace.ranges["name"]
    parsed = names.cat.categories.to_series().str.extract(_ACTION)
    parsed = rows_where(parsed, parsed["what"].isin([*_WORK, *_SENT]))
    rows = rows_where(trace.ranges, names.isin(parsed.index).to_numpy()).reset_index(drop=True)
    fields = parsed.reindex(rows["name"].astype("object")).reset_index(drop=True)
    return table_of(
        {
            "start_ns": rows["start_ns"],
            "end_ns": rows["end_ns"],
            "stage": fields["stage"].astype("int64"),
            "what": fields["what"].map(_WORK | _SENT),
            "microbatch": fields["microbatch"].astype("int64"),
            "is_compute": fields["what"].isin(_WORK),
            "back": fields["back"].map(_WORK),
            **{name: pd.to_numeric(fields[name]).astype("Int64") for name in ("back_stage", "back_microbatch")},
        }
    )


def action_at(found: pd.DataFrame, times: np.ndarray) -> np.ndarray:
    """Row of the action at each time on whatever thread, -1 where there is none; actions follow each other."""
    return step_at(array_of(found, "start_ns"), array_of(found, "end_ns"), times)


def point_to_point(calls: pd.DataFrame) -> pd.DataFrame:
    """The calls that send to, or receive from, peers that the trace names.

    Kernels without arguments are left out: an all-to-all uses the same kernel.
    """
    if calls.empty:
        return calls
    return rows_where(calls, calls["collective"].isin(POINT_TO_POINT).to_numpy() & calls["peers"].notna())


def with_absent(moves: pd.DataFrame, ranks: list[int]) -> pd.DataFrame:
    """The messages, and those of ranks without a trace as far as the ranks at their other ends tell.

    What comes from a rank goes the other way than all that is sent to it: a gradient for each activation. To whom ranks
    without a trace send beside is not known.
    """
    held = moves[~moves["peer"].isin(ranks)]
    if held.empty:
        return moves
    other = held.assign(rank=held["peer"], peer=held["rank"], is_send=~held["is_send"].astype(bool))
    sent = held[held["is_send"].astype(bool)].groupby(["rank", "peer"])["direction"].agg(set)
    back = {FORWARD: BACKWARD, BACKWARD: FORWARD}
    one_way = sent.map(lambda ways: back.get(next(iter(ways))) if len(ways) == 1 else None)
    pairs = pd.MultiIndex.from_frame(held[["rank", "peer"]])
    direction = pd.Series(one_way.reindex(pairs).to_numpy(), index=held.index, dtype="object")
    other["direction"] = direction.where(other["is_send"], None)
    return pd.concat([moves, other], ignore_index=True)


def stages(moves: pd.DataFrame) -> pd.DataFrame:
    """`rank`, `pipeline` and `stage` of every rank that takes part, pipelines being the connected groups.

    Ranks that have no trace, but messages (see `with_absent`), are stages as the others are. Those that exchange
    with one rank only, as several others do, are none (`is_of_hub`).

    Stages follow the activations, where the directions of messages are known. Else they follow the ranks' order;
    reversed when only the highest rank's first transfer of a step is a send (the first stage sends before it receives).
    """
    moves = rows_where(moves, ~is_of_hub(moves[["rank", "peer"]].set_axis(["one", "other"], axis=1)))
    ranks = set(moves["rank"])
    pairs = moves[["rank", "peer"]].drop_duplicates().astype(int).itertuples(index=False)
    links = [(rank, peer) if peer in ranks else (rank,) for rank, peer in pairs]
    senders = sends_first(moves)
    rows: list[tuple[int, int, int]] = []
    for number, members in enumerate(connected(links)):
        order = _along(moves, members)
        if order is None:
            is_reversed = members[-1] in senders and members[0] not in senders
            order = members[::-1] if is_reversed else members
        rows += [(rank, number, stage) for stage, rank in enumerate(order)]
    return pd.DataFrame(rows, columns=["rank", "pipeline", "stage"])


def _along(moves: pd.DataFrame, members: list[int]) -> list[int] | None:
    """The ranks in the order in which activations go: from the one that sends more than it receives.

    `None` where directions are not known, no single rank is the first, or the way does not reach every rank.
    """
    sends = moves[moves["is_send"].astype(bool) & (moves["direction"] == FORWARD) & moves["rank"].isin(members)]
    edges = sends.groupby(["rank", "peer"]).size()
    surplus = edges.groupby("rank").sum().sub(edges.groupby("peer").sum(), fill_value=0)
    first = surplus.index[surplus > 0]
    if len(first) != 1:
        return None
    order = [int(first[0])]
    while len(order) < len(members):
        ways = {peer: count for (rank, peer), count in edges.items() if rank == order[-1] and peer not in order}
        if not ways:
            return None
        order.append(int(max(ways, key=ways.__getitem__)))
    return order


def sends_first(moves: pd.DataFrame) -> set[int]:
    """The ranks that begin most of their steps with a send."""
    own = moves[moves["step"].notna()] if moves["step"].notna().any() else moves
    # Where the CPU runs ahead, a receive that is posted later can start before a send that waits for compute.
    own = own.assign(begin=own["launch_ns"].fillna(own["start_ns"])).sort_values(["begin", "is_send"], kind="stable")
    share = own.drop_duplicates(["rank", "step"]).groupby("rank")["is_send"].mean()
    return {int(rank) for rank in share.index[share > SHARE]}


class PipelineMessages(Result):
    """One row for each message that a rank of a pipeline sends or receives, in order of its calls."""

    title = "Messages between pipeline stages"
    is_detail = True
    keys = ("rank", "call", "is_send", "peer", "message")
    columns = declared(
        rank=RANK,
        call=CALL,
        message=Column.ident("Position among the call's messages."),
        step="Step that launched the call; absent for none.",
        launch_ns=Column.moment("When the host began to launch the call; absent when unknown."),
        start_ns="Start of the call on the GPU.",
        end_ns="End of the call on the GPU.",
        is_send="Whether the rank sends it.",
        peer="Global rank at the other end.",
        direction=(
            "forward (an activation) or backward (a gradient): of a send by the schedule's range around it, else "
            "by the compute launched last before it (of several at once, or after passes of both directions, by "
            "what else goes to the peer); of a receive only by such a range. Absent when unknown."
        ),
    )


def per_rank(trace: RankTrace, calls: pd.DataFrame, groups: pd.DataFrame, phase_of_op: np.ndarray) -> pd.DataFrame:
    """The rank's messages to named peers, but for those that go round (context parallel) or between neighbours."""
    own = point_to_point(calls)
    own = rows_where(own, ~own["call"].isin(in_ring(calls, groups))) if len(own) else own
    if own.empty:
        return pd.DataFrame()
    moves = messages_of(own)[["call", "gpu_op", "step", "start_ns", "end_ns", "is_send", "peer"]]
    rows = array_of(moves, "gpu_op")
    before = _phases_before(trace, rows, phase_of_op)
    by_streams = _of_several(moves, before["last"].where(moves["is_send"], None), array_of(before, "is_mixed"))
    direction = _by_ranges(trace, rows).fillna(by_streams).to_numpy()
    launch = trace.launch[rows]
    launched_ns = np.append(array_of(trace.api_calls, "start_ns"), NONE)[launch]
    return moves.assign(message=moves.groupby("call").cumcount(), direction=direction,
                        launch_ns=nullable(launched_ns, launch == NONE))  # fmt: skip


def in_launch_order(trace: RankTrace, transfers: np.ndarray, phase_of_op: np.ndarray) -> pd.DataFrame:
    """The rank's launched operations in the order of their launches, with their row in `gpu_ops` as `gpu_op`.

    `phase` is that of compute; `cut` how many transfers were launched until then.
    """
    count = len(trace.gpu_ops)
    ops = trace.gpu_ops[["start_ns", "end_ns", "kind", "launch"]].assign(
        step_row=trace.op_step,
        gpu_op=np.arange(count),
        is_transfer=np.isin(np.arange(count), transfers),
        phase=np.where(rows_named(trace.gpu_ops, "kind", "compute"), PHASE_NAMES[phase_of_op], None),
    )
    held = rows_where(ops, (ops["launch"] != NONE) & trace.counted)
    held = held.sort_values(["launch", "start_ns"], kind="stable", ignore_index=True)
    return held.assign(cut=held["is_transfer"].cumsum())


def _of_several(moves: pd.DataFrame, direction: pd.Series, is_mixed: np.ndarray) -> pd.Series:
    """Directions where sends that can be of two passes have those of their peers.

    A call that sends an activation and a gradient follows a pass each way: the compute launched last tells that of one
    of them only. So it is where one of the two passes has nothing to send, as those of the first and the last stage.
    What else goes to the same peer tells, where that goes one way.
    """
    is_alone = moves["is_send"] & (moves["is_send"].groupby(moves["call"]).transform("sum") == 1)
    is_certain = is_alone & ~is_mixed
    if is_certain.equals(moves["is_send"]):
        return direction
    ways = table_of({"peer": moves["peer"], "way": direction})[is_certain].drop_duplicates()
    known = moves["peer"].map(ways.drop_duplicates("peer", keep=False).set_index("peer")["way"]).astype("object")
    known = known.where(known.notna() | ~is_alone, direction)
    return direction.where(is_certain | ~moves["is_send"], known.where(known.notna(), None))


def in_ring(calls: pd.DataFrame, groups: pd.DataFrame) -> np.ndarray:
    """Numbers of a rank's calls whose messages go round, or both ways, or are of a group that is for something else."""
    own = point_to_point(calls)
    if own.empty or groups.empty:
        return np.empty(0, dtype=np.int64)
    texts = (table[["group", "group_ranks"]].astype("object").fillna("") for table in (own, groups))
    whose, known = (text["group"].str.cat(text["group_ranks"], " of ") for text in texts)
    named = (None, PIPELINE, EMBEDDING, MODEL)
    rings = [key for key, uses in groups.groupby(known) if role_of_messages(uses) not in named]
    return array_of(own, "call")[whose.isin(rings)]


def _by_ranges(trace: RankTrace, rows: np.ndarray) -> pd.Series:
    """What the schedule's range around each launch says; absent without."""
    found = actions(trace)
    found = found[~found["is_compute"]].reset_index(drop=True)
    launch = trace.launch[rows]
    if found.empty:
        return pd.Series([None] * len(rows), dtype="object")
    times = np.append(array_of(trace.api_calls, "start_ns"), NONE)[launch]
    names = np.array([*found["what"], None], dtype=object)
    return pd.Series(names[action_at(found, times)], dtype="object")


def _phases_before(trace: RankTrace, rows: np.ndarray, phase_of_op: np.ndarray) -> pd.DataFrame:
    """`last`: forward or backward, as the compute launched last before each operation is; absent before any.

    `is_mixed`: compute of both lies between the operation and the one of `rows` before it (before whose like where
    there is none between).
    """
    ops = in_launch_order(trace, rows, phase_of_op)
    work = rows_where(ops, ops["phase"].isin([FORWARD, BACKWARD]))
    passes = work.groupby("cut")["phase"]
    sent = array_of(ops, "gpu_op")[ops["is_transfer"]]
    before = table_of({"last": passes.last(), "number": passes.nunique()}, passes.last().index)
    before = before.reindex(range(len(sent))).ffill().set_axis(sent).reindex(rows)
    return table_of({"last": array_of(before, "last"), "is_mixed": array_of(before, "number") > 1})
