"""Whose transfers are longer than those of groups that do the same."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.slower_calls import across
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.trace.ranks import Ranks

WORLD = ",".join(map(str, range(16)))
COLUMNS = ["rank", "call", "instance", "step", "end_ns", "collective", "size_bytes", "transfer_ns", "is_only_wait",
           "moves_only", "is_timed", "group_ranks"]  # fmt: skip


def slower(groups, hosts=None, *, staged=True):
    """What calls take longer, by the ranks of their group: `groups` are (ranks, collective, bytes, ns, step)."""
    rows = [
        (rank, instance, instance, step, 1_000, collective, size, ns, False, False, True, WORLD)
        for instance, (ranks, collective, size, ns, step) in enumerate(groups)
        for rank in ranks
    ]
    types = dict.fromkeys(("instance", "step", "size_bytes", "transfer_ns"), "Int64")
    members = Members(pd.DataFrame(rows, columns=COLUMNS).astype(types))
    every = sorted({row[0] for row in rows})
    ranks = Ranks(pd.DataFrame({"rank": every, "host": [(hosts or {}).get(rank) for rank in every]}))
    stages = Pipeline(pd.DataFrame({"rank": every if staged else []}))
    table = across({}, members, ranks, stages).table
    return {
        (each, int(step)): int(ns)
        for each, step, ns in table[["among", "step", "longer_ns"]].drop_duplicates().itertuples(index=False)
    }


def reduces(*times, size=100, step=0):
    """An all-reduce of pairs of ranks 0 and 1, 2 and 3, …"""
    return [((2 * n, 2 * n + 1), "all_reduce", size, ns, step) for n, ns in enumerate(times)]


@pytest.mark.parametrize(
    ("groups", "longer"),
    [
        (reduces(40, 40, 400), {("4,5", 0): 360}),
        (reduces(40, 400), {("2,3", 0): 360}),
        (reduces(40, 400, 400), {("2,3", 0): 360, ("4,5", 0): 360}),
        (reduces(40, 40, 60), {("4,5", 0): 20}),
        (reduces(40, 40, 48), {}),
        (reduces(400), {}),
        (reduces(40, 400) + reduces(400, 40, step=1), {("2,3", 0): 360, ("0,1", 1): 360}),
        # stages with more parameters: five times the bytes take up to five times as long
        ([*reduces(40), ((2, 3), "all_reduce", 500, 200, 0)], {}),
        ([*reduces(40), ((2, 3), "all_reduce", 500, 400, 0)], {("2,3", 0): 200}),
        ([*reduces(40), ((2, 3), "all_reduce", 10, 60, 0)], {("2,3", 0): 20}),
        # the same bytes in several calls: those of a step together
        (reduces(40, 10) + reduces(10, 40), {}),
        # another collective, and more ranks, are no sisters
        ([*reduces(40), ((2, 3), "all_gather", 100, 400, 0)], {}),
        ([*reduces(40), ((2, 3, 4, 5), "all_reduce", 100, 400, 0)], {}),
        # messages are one exchange, called by two names
        ([((0, 1), "send", 100, 40, 0), ((2, 3), "recv", 100, 400, 0)], {("2,3", 0): 360}),
        ([((0, 1), "send", 100, 40, 0), ((2, 3), "recv", 10, 400, 0)], {}),
    ],
    ids=[
        "one of three", "one of two", "two of three", "half as long again", "a fifth longer", "no sister", "in turn",
        "more bytes", "more bytes and slow", "fewer bytes and slow", "in another order", "another collective",
        "more ranks", "messages", "messages of another size",
    ],
)  # fmt: skip
def test_a_group_is_held_against_those_that_do_the_same(groups, longer):
    assert slower(groups) == longer


SPREAD = (30, 34, 36, 38, 40, 44, 48)


def test_what_chance_explains_is_no_slower_transfer():
    assert slower(reduces(*SPREAD, 55)) == {}
    assert slower(reduces(*SPREAD, 80)) == {("14,15", 0): 40 + 2}


def test_what_one_step_leaves_to_chance_several_make_sure():
    times = [reduces(*SPREAD[step:], *SPREAD[:step], 53, step=step) for step in range(4)]
    assert slower(times[0]) == {}
    assert {*slower([each for own in times for each in own])} == {("14,15", step) for step in range(4)}


@pytest.mark.parametrize(
    ("others", "longer"),
    [((40, 36, 44, 38, 42), {}), ((40, 40, 40, 40, 40), {("0,1", 5): 16})],
    ids=["as its steps differ", "beyond them"],
)
def test_of_two_groups_their_steps_tell_what_is_chance(others, longer):
    steps = [*zip(others, reversed(others), strict=True), (56, 40)]
    assert slower([each for step, times in enumerate(steps) for each in reduces(*times, step=step)]) == longer


def test_half_of_the_groups_are_held_against_the_others():
    assert {*slower(reduces(38, 39, 40, 41, 80, 80, 80, 80))} == {("8,9", 0), ("10,11", 0), ("12,13", 0), ("14,15", 0)}


def test_groups_across_hosts_are_no_sisters_of_those_within_one():
    hosts = dict.fromkeys(range(6), "a") | dict.fromkeys((3, 5, 7), "b") | {6: "a"}
    assert slower(reduces(40, 400, 400, 400), {**hosts, 2: "a", 4: "a"}) == {}
    assert slower(reduces(40, 400, 400, 900), {**hosts, 2: "a", 4: "a"}) == {("6,7", 0): 500}


@pytest.mark.parametrize("others_run", [False, True])
def test_what_one_group_alone_runs_is_extra(others_run):
    """Not in a pipeline, whose stages differ, nor where another rank runs it too, though that call is not matched."""
    extra = ((1, 2), "all_gather", 500, 300, 0)
    calls = [((0, 1, 2, 3), "all_reduce", 100, 40, 0), extra]
    calls += [((3,), "all_gather", 500, 300, 0)] if others_run else []
    assert slower(calls, staged=False) == ({} if others_run else {("1,2", 0): 300})
    assert slower(calls) == {}


def test_messages_of_one_call_are_told_apart_by_their_other_ends():
    """Of a ring each call holds two messages and ends with the later one; clocks tell what follows the last start."""
    slow = {1, 2}
    rows = [
        (rank, rank, edge, 0, 1_000, "send_recv", 100, 600 if rank in slow else 100, False, False, True, WORLD)
        for rank in range(6)
        for edge in (rank, (rank - 1) % 6)
    ]
    types = dict.fromkeys(("instance", "step", "size_bytes", "transfer_ns"), "Int64")
    ranks = Ranks(pd.DataFrame({"rank": range(6), "host": [None] * 6}))

    def of(table):
        members = Members(pd.DataFrame(table, columns=COLUMNS).astype(types))
        return {*across({}, members, ranks, Pipeline(pd.DataFrame({"rank": []}))).table["among"]}

    assert of(rows) == {"1,2"}
    assert of([(*row[:10], False, WORLD) for row in rows]) == set(), "a wait for another peer, as far as is known"
    late = [(*row[:7], 600, *row[8:]) if (row[0], row[2]) == (3, 2) else row for row in rows]
    assert of(late) == {"1,2"}, "what rank 3 waited for its other peer is no transfer"
