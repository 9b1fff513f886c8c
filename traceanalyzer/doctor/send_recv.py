"""Sends and receives that never completed, and whether their other end was ever called."""

import re
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.doctor.flight_recorder import FlightRecorder, Group

_CALL = re.compile(r"(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})")


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A send or receive that a rank called and that is not complete, the rank's first in its group.

    Attributes:
        group: the process group.
        rank: who called it.
        is_send: whether it sends.
        peer: the other end's global rank.
        peer_left_dump: whether the other end's dump is there.
        peer_is_open: whether the other end has its own half open too.
        since_ns: when it was called.
        frames: where in Python, innermost first.
    """

    group: Group
    rank: int
    is_send: bool
    peer: int
    peer_left_dump: bool
    peer_is_open: bool
    since_ns: int | None
    frames: tuple[str, ...]


def open_calls(recorder: FlightRecorder) -> list[OpenCall]:
    """Of each rank and group the first send or receive that is not complete, the earliest first."""
    entries = recorder.entries
    stuck = entries[entries["is_p2p"] & (entries["state"] != "completed")]
    told = [
        (str(row.group), int(row.rank), int(row.entry), row.created_ns, call)
        for row in stuck.itertuples()
        if (call := _CALL.match(str(row.operation))) is not None
    ]
    halves = {(group, *_ends(recorder.groups[group], call)) for group, _, _, _, call in told}
    made: dict[tuple[str, int], OpenCall] = {}
    for group, rank, entry, created, call in told:
        is_send, own, peer = _ends(recorder.groups[group], call)
        if (group, rank) not in made:
            made[group, rank] = OpenCall(
                group=recorder.groups[group],
                rank=rank,
                is_send=is_send,
                peer=peer,
                peer_left_dump=peer in recorder.dumps,
                peer_is_open=(group, not is_send, peer, own) in halves,
                since_ns=None if pd.isna(created) else int(created),
                frames=tuple(recorder.frames_of(rank, entry)),
            )
    return sorted(made.values(), key=lambda one: (one.peer_is_open, one.since_ns is None, one.since_ns or 0))


def _ends(group: Group, call: re.Match[str]) -> tuple[bool, int, int]:
    """Whether it sends, and the global ranks of caller and other end; `send 0->1` counts ranks in the group."""
    ends = [int(call[2]), int(call[3])]
    known = group.ranks
    own, peer = (known[end] if known is not None and end < len(known) else end for end in ends)
    return call[1] == "send", own, peer
