"""Bandwidths, size classes and link peaks; clocks over chained groups; instances."""

import pandas as pd
import pytest

import traceanalyzer as ta
from tests.analyses.communication.test_members import Ranks, rank
from tests.samples import SAMPLES
from traceanalyzer.analyses import run, trace
from traceanalyzer.analyses.communication import clocks, collectives, waits
from traceanalyzer.analyses.communication import groups as communication_groups
from traceanalyzer.analyses.communication.waits import call_waits_across


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 8, 0.875), ("reduce_scatter", 4, 0.75),
        ("all_to_all", 2, 0.5), ("broadcast", 8, 1.0), ("send", 8, 1.0), ("all_reduce", pd.NA, pd.NA),
    ],
)  # fmt: skip
def test_bus_factors(collective, ranks, factor):
    found = collectives.bus_factors(pd.Series([collective]), pd.Series([ranks], dtype="Int64"))[0]
    assert found is factor or found == factor


@pytest.mark.parametrize(
    ("size", "name"),
    [(0, "≤ 64 KiB"), (65_536, "≤ 64 KiB"), (65_537, "≤ 1 MiB"), (1 << 24, "≤ 16 MiB"), (1 << 30, "> 256 MiB"),
     (pd.NA, "unknown")],
)  # fmt: skip
def test_size_classes(size, name):
    assert collectives.size_classes(pd.Series([size], dtype="Int64"))[0] == name


def test_bandwidth_is_of_the_transfer_without_waits():
    table = waits.members_across(
        {0: rank((0, 100, {"size_bytes": 2_000_000})), 1: rank((90, 100, {"size_bytes": 2_000_000}))}, Ranks(0, 1)
    )
    frame = collectives.collectives_across(
        {},
        call_waits_across({}, table),
        table,
        Ranks(0, 1),
        communication_groups.across({}, trace.Ranks.without_rows()),
    ).to_frame()
    assert frame["transfer_ns"].tolist() == [10_000, 10_000]
    assert frame["wait_ns"].tolist() == [90_000, 0]
    assert frame["algbw_gbps"].tolist() == frame["busbw_gbps"].tolist() == [200.0, 200.0]
    assert frame["peak_pct"].round(1).tolist() == [44.4, 44.4]


def test_an_exchange_in_both_directions_is_one_instance_without_a_share_of_the_peak():
    def message(peer):
        return {"collective": "send_recv", "peers": f"send {peer}, recv {peer}"}

    table = waits.members_across({0: rank((0, 100, message(1))), 1: rank((60, 100, message(0)))}, Ranks(0, 1))
    frame = table.to_frame()
    assert frame["instance"].tolist() == [0, 0]
    assert frame["wait_ns"].tolist() == [60_000, 0]
    assert (
        collectives.collectives_across(
            {},
            call_waits_across({}, table),
            table,
            Ranks(0, 1),
            communication_groups.across({}, trace.Ranks.without_rows()),
        )
        .to_frame()["peak_pct"]
        .isna()
        .all()
    )


def test_clocks_are_chained_over_groups_and_measured_from_the_median_rank():
    shift = {0: 0, 1: 0, 2: 500, 3: 500}
    groups = {0: "0,1", 1: "0,1", 2: "2,3", 3: "2,3"}
    parts = {
        number: rank(
            (shift[number], shift[number] + 100, {"group": "shard" + groups[number][0], "group_ranks": groups[number]}),
            (shift[number] + 200, shift[number] + 300, {"group": f"col{number % 2}", "group_ranks": f"{number % 2},{number % 2 + 2}"}),
        )
        for number in range(4)
    }  # fmt: skip
    table = waits.members_across(parts, Ranks(*parts))
    frame = clocks.across({}, table, Ranks(0, 1, 2, 3, 9)).to_frame().set_index("rank")
    assert frame["offset_ns"].tolist()[:4] == [-250_000, -250_000, 250_000, 250_000]
    assert frame["is_significant"].tolist()[:4] == [True] * 4
    assert frame.loc[9, ["offset_ns", "reference", "is_significant"]].isna().all()


@pytest.mark.parametrize(("late", "skew"), [(20, None), (80, 80_000)], ids=["within the clocks' uncertainty", "beyond"])
def test_skew_only_where_clocks_allow_it(late, skew):
    table = waits.members_across({0: rank((0, 100)), 1: rank((late + 500, 600))}, Ranks(0, 1))
    frame = collectives.instances_across({}, table, clocks.across({}, table, Ranks(0, 1))).to_frame()
    (found,) = frame["skew_ns"]
    assert (None if pd.isna(found) else found) == skew
    assert frame[["last_rank", "max_wait_rank", "max_wait_ns", "ranks"]].iloc[0].tolist() == [1, 0, late * 1000, 2]


@pytest.mark.parametrize("steps", [pytest.param("all", marks=pytest.mark.thorough), "complete"])
def test_only_calls_of_the_selected_steps_count(steps):
    results = run(ta.load(SAMPLES / "ddp", steps=steps).ranks, ["collectives", "nccl", "matches"])
    assert (
        results["collectives"].table["calls"].sum()
        == results["matches"].table["calls"].sum()
        == results["nccl"].table["calls"].sum()
        == {"all": 85, "complete": 84}[steps]
    )
