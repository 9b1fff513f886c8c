"""Which part of a step makes a rank late, and against what it is held."""

import pandas as pd
import pytest

from tests.analyses.blame.test_lateness import MS, needs
from traceanalyzer.analyses.blame.lateness import cells, with_excess


def steps(parts, wait_ms=30, **columns):
    """Steps of 100 ms of some ranks: of parts the milliseconds of each rank, one for all steps or one for each."""
    count = max((len(own) for of_ranks in parts.values() for own in of_ranks if isinstance(own, list)), default=4)
    ranks = len(next(iter(parts.values())))
    table = needs([[0] * count] * ranks, [[None] * count] * ranks, wait_ns=wait_ms * MS)
    every = {
        name: [ms * MS for own in of_ranks for ms in (own if isinstance(own, list) else [own] * count)]
        for name, of_ranks in parts.items()
    }
    return table.assign(begin_ns=table["step"] * 100 * MS, end_ns=(table["step"] + 1) * 100 * MS, **every, **columns)


def late_by(table):
    """What makes rank 1 late in its first late step, in milliseconds by part."""
    found = cells(with_excess(table))
    first = found[(found["rank"] == 1) & (found["step"] == found["step"].min())]
    return {part: round(ns / MS) for part, ns in zip(first["part"], first["excess_ns"], strict=True)}


@pytest.mark.parametrize(
    ("host_ms", "launch_ms", "late"),
    [(20, 10, {"host_ns": 30}), (12, 20, {"host_ns": 12, "launch_ns": 20}), (30, 0, {"host_ns": 30})],
    ids=["the smaller part", "the larger one", "none"],
)
def test_latencies_of_launches_are_the_hosts_where_they_are_the_smaller_part(host_ms, launch_ms, late):
    assert late_by(steps({"host_ns": [0, host_ms], "launch_ns": [0, launch_ms]})) == late


def test_a_host_is_not_late_by_the_loading_that_its_launching_holds():
    table = steps({"host_ns": [0, 50], "data_ns": [0, 30]}, wait_ms=50)
    needed = table["rank"].map({0: 0, 1: 50 * MS}).astype("Int64")
    assert late_by(table.assign(needed_host_ns=needed)) == {"data_ns": 30, "host_ns": 20}


@pytest.mark.parametrize(
    ("waits", "late"), [("exposed_wait_ns", {"unknown_ns": 30}), ("exposed_unmatched_ns", {})], ids=["seen", "not seen"]
)
def test_idle_time_without_a_reason_is_lateness_where_others_are_seen_to_wait(waits, late):
    assert late_by(steps({"unknown_ns": [0, 30]}, wait_ms=0).assign(**{waits: 30 * MS})) == late


@pytest.mark.parametrize(
    ("compute_ms", "excess_ms"),
    [
        ([[40, 40, 40, 40], [20, 20, 20, 40]], [0, 0, 0, 10]),  # half of twice as much: the other is no longer
        ([[40, 40, 40, 80], [20, 20, 20, 40]], [0, 0, 0, 0]),  # the step holds more, of all stages
        ([[40, 40, 40], [20, 20, 40]], [0, 0, 10]),
        ([[40, 40], [20, 40]], [0, 0]),  # of so few steps what is usual is not known
    ],
)
def test_a_stage_without_peers_is_held_against_what_it_usually_computes(compute_ms, excess_ms):
    table = steps({"compute_ns": compute_ms})
    held = with_excess(table.assign(peers="stage " + table["rank"].astype("str")))
    assert (held.loc[held["rank"] == 1, "compute_ns_excess"] / MS).tolist() == excess_ms


def test_a_stage_without_peers_is_held_against_what_others_take_for_the_same_work():
    table = steps({"compute_ns": [40, 60]})
    table = table.assign(peers="stage " + table["rank"].astype("str"), slower_ns=table["rank"].map({0: 0, 1: 15 * MS}))
    assert (with_excess(table).groupby("rank")["compute_ns_excess"].first() / MS).tolist() == [0, 15]
    alike = with_excess(table.assign(peers="all"))  # held against its peers, by what it computes
    assert (alike.groupby("rank")["compute_ns_excess"].first() / MS).tolist() == [-20, 20]


def test_what_stages_differ_in_by_design_makes_none_late():
    table = steps({"launch_ns": [0, 20], "host_ns": [0, 30]})
    assert late_by(table.assign(peers="stage " + table["rank"].astype("str"))) == {"host_ns": 30}
    assert late_by(table) == {"host_ns": 50}


def test_ranks_of_one_stage_are_held_against_each_other():
    table = steps({"launch_ns": [0, 20, 0]})
    assert late_by(table.assign(peers=table["rank"].map({0: "stage 0", 1: "stage 0", 2: "stage 1"}))) == {
        "launch_ns": 20
    }


def test_steps_that_are_cut_or_set_a_clock_are_held_against_nothing_and_transfers_from_there_on():
    table = steps({"slower_transfer_ns": [0, 30], "transfer_ns": [5, 35]})
    is_first, is_own = table["step"] == 0, table["rank"] == 1
    table = table.assign(is_partial=is_first & is_own)
    table.loc[(table["step"] == 2) & ~is_own, "clock_jump_ns"] = 7
    held = with_excess(table)
    own = held[held["rank"] == 1]
    assert own["step"].tolist() == [1, 2, 3]
    assert (own["transfer_ns_excess"] / MS).tolist() == [30, 0, 0]
    assert held.loc[held["rank"] == 0, "step"].tolist() == [0, 1, 3]


def test_nobody_is_late_by_more_than_the_step():
    assert (with_excess(steps({"host_ns": [0, 150]}, wait_ms=90))["excess_ns"].max() / MS) == 100


def test_a_rank_that_is_late_in_most_steps_is_late_where_it_computes_as_in_the_others():
    found = cells(with_excess(steps({"compute_ns": [[20, 20, 20, 40], [40] * 4]}, wait_ms=20)))
    assert list(zip(found["rank"], found["step"], strict=True)) == [(1, 0), (1, 1), (1, 2)]


def test_of_no_steps_nobody_is_late():
    assert cells(pd.DataFrame()).empty
    assert cells(with_excess(needs([[0]], [[0]]).iloc[:0])).empty
