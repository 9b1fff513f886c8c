"""Instances of hand-made calls: transfer, wait, and why a call has none."""

import pandas as pd
import pytest

from traceanalyzer.analyses.communication import waits as communication_waits
from traceanalyzer.analyses.communication.waits import call_waits_across


class Ranks:
    """As much of the Result as is asked for."""

    def __init__(self, *numbers, device_name="NVIDIA H200"):
        self.table = pd.DataFrame({"rank": numbers, "device_name": device_name, "host": None})


DEFAULTS = {
    "stream": 17, "step": 0, "collective": "all_reduce", "group": "0", "group_description": "", "group_ranks": "0,1",
    "group_size": 2, "dtype": "Float", "size_bytes": 64, "sequence": pd.NA, "root": pd.NA, "peers": None,
    "is_uneven": False, "arguments": "kernel", "name": "nccl", "grid": "24x1x1", "activity": "kernel",
    "world_size": pd.NA, "listed_groups": None, "launched_ns": -1, "file": "", "is_cut": False,
}  # fmt: skip


def rank(*calls):
    """A rank's table; each call is (start, end) in µs and what differs from the defaults."""
    rows = [
        DEFAULTS | {"call": number, "start_ns": start * 1000, "end_ns": end * 1000} | (more[0] if more else {})
        for number, (start, end, *more) in enumerate(calls)
    ]
    integers = ("step", "group_size", "size_bytes", "sequence", "root")
    return pd.DataFrame(rows).astype(dict.fromkeys(integers, "Int64") | {"is_uneven": "boolean"})


def waits(*ranks, present=None):
    """(wait, waits for, why not split) of every call, by rank and call; µs."""
    parts = present or dict(enumerate(ranks))
    frame = call_waits_across(communication_waits.members_across(parts, Ranks(*parts))).to_frame()
    return {
        (row.rank, row.call): (
            None if pd.isna(row.wait_ns) else row.wait_ns // 1000,
            None if pd.isna(row.waits_for) else row.waits_for,
            row.why_not_split if isinstance(row.why_not_split, str) else None,
        )
        for row in frame.itertuples(index=False)
    }


def test_the_last_rank_does_not_wait():
    assert waits(rank((0, 100)), rank((80, 100))) == {(0, 0): (80, 1, None), (1, 0): (0, None, None)}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"collective": "broadcast"}, "has one root: its ranks do not wait alike"),
        ({"collective": "all_to_all", "is_uneven": True}, "uneven all-to-all: its ranks do not wait alike"),
        (
            {"collective": "all_to_all", "is_uneven": None},
            "all-to-all that may be uneven: the trace leaves out some of its sizes",
        ),
        ({"collective": "unknown"}, "the trace does not say which collective it is"),
        ({"group": None, "group_ranks": None}, "the trace does not say its process group"),
        ({"group_ranks": None, "group_size": 3}, "the ranks of its group are not known"),
        ({"collective": "send_recv"}, "the trace does not say its peers"),
    ],
)
def test_calls_that_cannot_be_split_say_why(more, why):
    sides = [rank((0, 100, more), (200, 300)), rank((80, 100, more), (210, 300))]
    found = waits(*sides)
    assert found[0, 0] == found[1, 0] == (None, None, why)
    assert found[0, 1] == (10, 1, None), "the other calls are not harmed"


def test_messages_are_paired_in_order_and_peers_are_numbered_in_the_group():
    def message(peers):
        return {"collective": "send_recv", "peers": peers, "group_ranks": "4,5,6", "group_size": 3}

    parts = {
        4: rank((0, 100, message("send 1")), (200, 300, message("recv 1"))),
        5: rank((90, 100, message("recv 0")), (290, 300, message("send 0, send 2"))),
        6: rank((100, 300, message("recv 1"))),
    }
    found = waits(present=parts)
    assert found == {
        (4, 0): (90, 5, None), (4, 1): (90, 5, None), (5, 0): (0, None, None), (5, 1): (0, None, None),
        (6, 0): (190, 5, None),
    }  # fmt: skip
