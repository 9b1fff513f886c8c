"""Which ranks form a pipeline, and in which order: from the peers of their point-to-point calls."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.messages import global_rank
from traceanalyzer.analyses.pipelines.hubs import is_of_hub
from traceanalyzer.analyses.pipelines.stage_ranges import BACKWARD, FORWARD
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.model.tables import only, rows_where, without_rows

_BACK = {FORWARD: BACKWARD, BACKWARD: FORWARD}


def point_to_point(calls: pd.DataFrame) -> pd.DataFrame:
    """The calls that send to, or receive from, peers that the trace names.

    Kernels without arguments are left out: an all-to-all uses the same kernel.
    """
    if calls.empty:
        return calls
    is_message = np.isin(calls["collective"].to_numpy(dtype=object), POINT_TO_POINT)
    if not is_message.any():
        return calls.iloc[:0]
    return rows_where(calls, is_message & calls["peers"].notna())


def transfers(calls: pd.DataFrame) -> pd.DataFrame:
    """One row for each send or receive: `rank`, `call`, `gpu_op`, `step`, times, `is_send`, `peer` (global rank).

    A peer is a position in its process group; without the group's ranks it is taken for the global rank.
    """
    calls = point_to_point(calls)
    columns = ["rank", "call", "gpu_op", "step", "start_ns", "end_ns", "is_send", "peer"]
    if calls.empty:
        return without_rows(columns)
    table = only(calls, [*columns[:6], "group_ranks", "peers"]).assign(part=calls["peers"].str.split(", "))
    table = table.explode("part", ignore_index=True)
    parts = table["part"].str.extract(r"(?P<verb>send|recv) (?P<peer>\d+)$")
    known = parts["peer"].notna()
    table, parts = rows_where(table, known), rows_where(parts, known)
    peers = [global_rank(int(peer), ranks) for ranks, peer in zip(table["group_ranks"], parts["peer"], strict=True)]
    return only(
        table.assign(is_send=(parts["verb"] == "send"), peer=np.array(peers, dtype=np.int64)), columns
    ).reset_index(drop=True)


def with_absent(moves: pd.DataFrame, ranks: list[int]) -> pd.DataFrame:
    """The messages, and those of ranks without a trace as far as the ranks at their other ends tell.

    What comes from a rank goes the other way than all that is sent to it: a gradient for each activation. To whom ranks
    without a trace send beside is not known.
    """
    held = moves[~moves["peer"].isin(ranks)]
    if held.empty:
        return moves
    other = held.assign(rank=held["peer"], peer=held["rank"], is_send=~held["is_send"].astype(bool))
    if "direction" in moves:
        sent = held[held["is_send"].astype(bool)].groupby(["rank", "peer"])["direction"].agg(set)
        one_way = sent.map(lambda ways: _BACK.get(next(iter(ways))) if len(ways) == 1 else None)
        pairs = pd.MultiIndex.from_frame(held[["rank", "peer"]])
        told = pd.Series(one_way.reindex(pairs).to_numpy(), index=held.index, dtype="object")
        other["direction"] = told.where(other["is_send"], None)
    return pd.concat([moves, other], ignore_index=True)


def stages(moves: pd.DataFrame) -> pd.DataFrame:
    """`rank`, `pipeline` and `stage` of every rank that takes part, pipelines being the connected groups.

    Ranks that have no trace, but messages (see `with_absent`), are stages as the others are. Those that exchange
    with one rank only, as several others do, are none (`hubs`).

    Stages follow the activations, where the directions of messages are known. Else they follow the ranks' order;
    reversed when only the highest rank's first transfer of a step is a send (the first stage sends before it receives).
    """
    rows: list[tuple[int, int, int]] = []
    moves = rows_where(moves, ~is_of_hub(only(moves, ["rank", "peer"]).set_axis(["one", "other"], axis=1)))
    for number, members in enumerate(_connected(moves)):
        order = _along(moves, members) or (members[::-1] if _is_reversed(moves, members) else members)
        rows += [(rank, number, stage) for stage, rank in enumerate(order)]
    return pd.DataFrame(rows, columns=["rank", "pipeline", "stage"])


def begins_ns(moves: pd.DataFrame) -> pd.Series:
    """When messages begin: their launches, whose order is the program's; on the GPU where these are not known.

    Where hosts run ahead, a receive that is posted later can start before a send that waits for compute.
    """
    starts = moves["start_ns"]
    return moves["launch_ns"].fillna(starts) if "launch_ns" in moves else starts


def _connected(moves: pd.DataFrame) -> list[list[int]]:
    """Groups of ranks that transfer to each other, directly or not."""
    group = {int(rank): int(rank) for rank in sorted(moves["rank"].unique())}
    pairs = only(moves, ["rank", "peer"]).drop_duplicates()
    for _ in group:  # a pipeline's length bounds the number of passes
        before = dict(group)
        for rank, peer in pairs.itertuples(index=False):
            if rank in group and peer in group:
                group[rank] = group[peer] = min(group[rank], group[peer])
        if group == before:
            break
    return [sorted(rank for rank in group if group[rank] == first) for first in sorted(set(group.values()))]


def _along(moves: pd.DataFrame, members: list[int]) -> list[int] | None:
    """The ranks in the order in which activations go: from the one that sends more than it receives.

    `None` where directions are not known, no single rank is the first, or the way does not reach every rank.
    """
    if "direction" not in moves:
        return None
    sends = rows_where(moves, moves["is_send"] & (moves["direction"] == FORWARD) & moves["rank"].isin(members))
    edges = sends.groupby(["rank", "peer"]).size()
    surplus = edges.groupby("rank").sum().reindex(members, fill_value=0) - edges.groupby("peer").sum().reindex(
        members, fill_value=0
    )
    first = surplus.index[surplus > 0]
    if len(first) != 1:
        return None
    order = [int(first[0])]
    while len(order) < len(members):
        ways = edges[
            [peer not in order for _, peer in edges.index] & (edges.index.get_level_values("rank") == order[-1])
        ]
        if ways.empty:
            return None
        order.append(int(ways.idxmax()[1]))
    return order


def _is_reversed(moves: pd.DataFrame, members: list[int]) -> bool:
    return _sends_first(moves, members[-1]) and not _sends_first(moves, members[0])


def _sends_first(moves: pd.DataFrame, rank: int) -> bool:
    """Whether the rank's steps begin with a send (most of them)."""
    own = moves[(moves["rank"] == rank) & moves["step"].notna()]
    own = own if len(own) else moves[moves["rank"] == rank]
    first = own.assign(begin=begins_ns(own)).sort_values(["begin", "is_send"], kind="stable").drop_duplicates("step")
    return bool(2 * first["is_send"].sum() > len(first))
