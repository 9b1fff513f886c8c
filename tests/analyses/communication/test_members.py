"""Instances of hand-made calls: transfer, wait, and why a call has none."""

import pandas as pd
import pytest

from traceanalyzer.analyses import trace
from traceanalyzer.analyses.communication import groups
from traceanalyzer.analyses.communication import waits as communication_waits
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.waits import ONE_ROOT, call_waits_across, matches_across


class Ranks:
    """As much of the Result as is asked for."""

    def __init__(self, *numbers, device_name="NVIDIA H200"):
        self.table = pd.DataFrame({"rank": numbers, "device_name": device_name, "host": None})


DEFAULTS = {
    "stream": 17, "step": 0, "collective": "all_reduce", "group": "0", "group_description": "", "group_ranks": "0,1",
    "group_size": 2, "dtype": "Float", "size_bytes": 64, "sequence": pd.NA, "root": pd.NA, "peers": None,
    "is_uneven": False, "arguments": "kernel", "name": "nccl", "grid": "24x1x1",
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
    frame = call_waits_across({}, communication_waits.members_across(parts, Ranks(*parts))).to_frame()
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


def test_ranks_that_are_here_wait_for_each_other_where_one_has_no_trace():
    more, why = {"group_ranks": "0,1,2", "group_size": 3}, "a rank of its group has no trace"
    sides = [rank((0, 100, more)), rank((80, 100, more))]
    assert waits(*sides) == {(0, 0): (80, 1, why), (1, 0): (0, None, why)}
    table = communication_waits.members_across(dict(enumerate(sides)), Ranks(*range(len(sides)))).table
    assert table["transfer_ns"].isna().all(), "what follows the last that is here may be a wait for the third"
    assert not table["is_whole"].any()


def test_one_rank_alone_of_its_group_waits_for_nobody_that_is_known():
    assert waits(rank((0, 100, {"group_ranks": "0,2", "group_size": 2})), rank((80, 100)))[0, 0] == (
        None, None, "a rank of its group has no trace",
    )  # fmt: skip


def test_a_call_that_one_rank_lacks_stays_unmatched():
    found = waits(rank((0, 100), (200, 300), (500, 600)), rank((80, 100), (510, 600)))
    assert found[0, 1] == (None, None, "not seen on every rank of its group")
    assert found[0, 2] == (10, 1, None)


def test_a_group_of_unknown_ranks_is_that_of_its_holders_when_the_size_fits():
    more = {"group_ranks": "0, 1, ..., 7"}
    assert waits(rank((0, 100, more)), rank((80, 100, more)))[0, 0] == (80, 1, None)


def test_groups_of_one_name_and_other_ranks_are_apart():
    low, high = {"group_ranks": "0,1"}, {"group_ranks": "2,3"}
    found = waits(rank((0, 100, low)), rank((80, 100, low)), rank((0, 50, high)), rank((49, 50, high)))
    assert [found[r, 0][0] for r in range(4)] == [80, 0, 49, 0]


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


def test_a_call_of_several_peers_waits_for_the_last_of_them_to_start():
    """A ring of three without lockstep: ends of one message's calls are apart, and their durations bound nothing."""

    def ring(rank_number):
        peers = f"send {(rank_number + 1) % 3}, recv {(rank_number - 1) % 3}"
        return {"collective": "send_recv", "peers": peers, "group_ranks": "0,1,2", "group_size": 3}

    tied = {"group_ranks": "0,1,2", "group_size": 3}
    starts, ends = {0: (0, 500, 900), 1: (100, 700, 1300), 2: (300, 400, 1200)}, {0: (320, 900, 1301),
                   1: (320, 720, 1320), 2: (321, 720, 1320)}  # fmt: skip
    parts = {
        number: rank(
            *((start, end, ring(number)) for start, end in zip(starts[number], ends[number], strict=True)),
            *((at, at + 10, tied) for at in (2000, 2100, 2200)),
        )
        for number in range(3)
    }
    found = waits(present=parts)
    assert {key: value for key, value in found.items() if key[1] < 3} == {
        (0, 0): (300, 2, None), (1, 0): (200, 2, None), (2, 0): (0, None, None),
        (0, 1): (200, 1, None), (1, 1): (0, None, None), (2, 1): (300, 1, None),
        (0, 2): (400, 1, None), (1, 2): (0, None, None), (2, 2): (100, 1, None),
    }  # fmt: skip
    table = communication_waits.members_across(parts, Ranks(*parts)).to_frame()
    assert set(table.loc[table["collective"] == "send_recv", "ends_together"]) == {False}
    assert set(table.loc[table["collective"] == "all_reduce", "ends_together"]) == {True}


def test_a_step_selection_does_not_change_what_a_call_is_matched_with():
    parts = {0: rank((0, 100), (200, 300)), 1: rank((90, 100), (250, 300))}
    members = communication_waits.members_across(parts, Ranks(*parts))
    call_waits = call_waits_across({}, members)
    counted = ["calls", "matched_calls", "unmatched_calls", "split_calls"]
    matches = matches_across({}, call_waits, members, groups.across({}, trace.Ranks.without_rows())).to_frame()
    assert matches[counted].to_numpy().tolist() == [[2, 2, 0, 2]] * 2
    chosen = Calls(members.table[members.table["call"] == 1])
    assert (
        matches_across({}, call_waits, chosen, groups.across({}, trace.Ranks.without_rows()))
        .to_frame()[counted]
        .to_numpy()
        .tolist()
        == [[1, 1, 0, 1]] * 2
    )


def test_matched_calls_that_cannot_be_split_are_not_unmatched():
    more = {"collective": "broadcast"}
    members = communication_waits.members_across(
        {0: rank((0, 100, more), (200, 300)), 1: rank((80, 100, more), (290, 300))}, Ranks(0, 1)
    )
    (row, _) = matches_across(
        {}, call_waits_across({}, members), members, groups.across({}, trace.Ranks.without_rows())
    ).rows()
    counts = ("calls", "matched_calls", "unmatched_calls", "split_calls", "unsplit_calls")
    assert [row[name] for name in counts] == [2, 2, 0, 1, 1]
    assert (row["why_unmatched"], row["why_unsplit"]) == (None, ONE_ROOT)
