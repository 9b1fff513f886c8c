"""Transfer and wait of random jobs whose instances are known, against what their definition gives call by call."""

from collections import defaultdict

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses.communication.test_members import Ranks, rank
from tests.conftest import examples
from traceanalyzer.analyses import trace
from traceanalyzer.analyses.communication import collectives, groups
from traceanalyzer.analyses.communication import waits as communication_waits
from traceanalyzer.analyses.communication.waits import call_waits_across

ROUND_US = 1_000

JOBS = st.integers(2, 4).flatmap(
    lambda size: st.tuples(
        st.lists(
            st.tuples(
                st.sampled_from(("all_reduce", "all_gather", "broadcast", "ring")),
                st.lists(st.integers(0, 400), min_size=size, max_size=size),  # when each rank comes
                st.integers(1, 150),  # what the data takes
                st.integers(0, 300),  # pause before
            ),
            min_size=1, max_size=8,
        ),
        st.lists(st.integers(-500_000, 500_000), min_size=size, max_size=size),  # clocks
        st.booleans(),  # numbered
    )
)  # fmt: skip


def job(rounds, clocks, numbered):
    """The calls of each rank as (start, end, more), µs on its clock; those that end together do so to the µs."""
    size = len(clocks)
    named = {"group_ranks": ",".join(map(str, range(size))), "group_size": size}
    calls = [[] for _ in clocks]
    now = 0
    for number, (what, come, takes, pause) in enumerate(rounds):
        begins = now + pause
        for one in range(size):
            more = {**named, "collective": what, "sequence": number if numbered else pd.NA}
            end = begins + max(come) + takes
            if what == "ring":
                before, after = (one - 1) % size, (one + 1) % size
                more |= {"collective": "send_recv", "peers": f"send {after}, recv {before}", "sequence": pd.NA}
                end = begins + max(come[one], come[before], come[after]) + takes
            calls[one].append((begins + come[one] + clocks[one], end + clocks[one], more))
        now += ROUND_US + 7 * number * number
    # What ties the clocks together.
    for number in range(3):
        at = now + 3_000 + 400 * number + 90 * number * number
        for one, clock in enumerate(clocks):
            sequence = len(rounds) + number if numbered else pd.NA
            more = {**named, "collective": "all_reduce", "sequence": sequence, "size_bytes": 128}
            calls[one].append((at + clock - 5 * one, at + 40 + clock, more))
    return calls


def split(calls, clocks, call, present):
    """Transfer of each of these ranks' calls of one instance, µs; `None` where they do not wait alike."""
    what = calls[present[0]][call][2]
    lengths = {one: calls[one][call][1] - calls[one][call][0] for one in present}
    if what["collective"] == "broadcast":
        return dict.fromkeys(present)
    if what["collective"] == "send_recv" and len(calls) > 2:
        last = max(calls[one][call][0] - clocks[one] for one in present)
        return {one: min(max(calls[one][call][1] - clocks[one] - last, 0), lengths[one]) for one in present}
    return dict.fromkeys(present, min(lengths.values()))


def tables(calls):
    numbers = Ranks(*range(len(calls)))
    found = communication_waits.members_across({one: rank(*own) for one, own in enumerate(calls)}, numbers)
    waits = call_waits_across(found)
    return found.to_frame(), collectives.collectives_across(
        waits, found, numbers, groups.across({}, trace.Ranks.without_rows())
    )


@examples(8)
@given(JOBS)
def test_transfer_and_wait_are_those_of_the_definition(given_job):
    _, clocks, numbered = given_job
    calls = job(*given_job)
    table, by_rank = tables(calls)
    sums = defaultdict(int)
    for _, rows in table[table["instance"].notna()].groupby("instance"):
        (call,) = set(rows["call"])
        present = rows["rank"].tolist()
        expected = split(calls, clocks, call, present)
        for row in rows.itertuples(index=False):
            if row.is_ambiguous:
                assert pd.isna(row.transfer_ns)
                continue
            told = None if pd.isna(row.transfer_ns) else row.transfer_ns / 1000
            assert told == expected[row.rank], (call, row.rank, calls)
            length = row.end_ns - row.start_ns
            assert pd.isna(row.wait_ns) if told is None else row.wait_ns == length - row.transfer_ns
            if row.collective != "send_recv":
                sums[row.collective, row.size_bytes, row.rank] += row.transfer_ns if told is not None else 0
    if numbered:
        is_numbered = table["collective"] != "send_recv"
        assert table.loc[is_numbered, "instance"].notna().all()
        assert not table.loc[is_numbered, "is_ambiguous"].any()
    assert table["instance"].notna().any()
    totals = defaultdict(int)
    for row in by_rank.rows():
        if row["collective"] != "send_recv" and row["transfer_ns"] is not None:
            totals[row["collective"], row["rank"]] += row["transfer_ns"]
    for (what, one), total in totals.items():
        assert total == sum(value for key, value in sums.items() if (key[0], key[2]) == (what, one))
