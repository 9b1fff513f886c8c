"""Bandwidths, size classes and link peaks; clocks over chained groups; instances."""

import pandas as pd
import pytest

from tests.analyses.communication.test_members import Ranks, rank
from traceanalyzer.analyses import trace
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


def test_bandwidth_is_of_the_transfer_without_waits():
    table = waits.members_across(
        {0: rank((0, 100, {"size_bytes": 2_000_000})), 1: rank((90, 100, {"size_bytes": 2_000_000}))}, Ranks(0, 1)
    )
    frame = collectives.collectives_across(
        call_waits_across(table),
        table,
        Ranks(0, 1),
        communication_groups.across({}, trace.Ranks.without_rows()),
    ).to_frame()
    assert frame["transfer_ns"].tolist() == [10_000, 10_000]
    assert frame["wait_ns"].tolist() == [90_000, 0]
    assert frame["algbw_gbps"].tolist() == frame["busbw_gbps"].tolist() == [200.0, 200.0]
    assert frame["peak_pct"].round(1).tolist() == [44.4, 44.4]


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
    frame = clocks.across(table, Ranks(0, 1, 2, 3, 9)).to_frame().set_index("rank")
    assert frame["offset_ns"].tolist()[:4] == [-250_000, -250_000, 250_000, 250_000]
    assert frame["is_significant"].tolist()[:4] == [True] * 4
    assert frame.loc[9, ["offset_ns", "reference", "is_significant"]].isna().all()
