"""The table of collectives adds up to what the bars show of communication."""

import pytest

from tests import once
from traceanalyzer.report.words import split


def _of(name):
    results = once.results(name)
    return results["by_collective"].to_frame().set_index("collective"), split(results)


@pytest.mark.parametrize("name", ["ddp", "moe", "pp", "fsdp_full"])
def test_exposed_time_and_its_parts_are_those_of_the_bars(name):
    table, parts = _of(name)
    mean = parts.table.filter(regex="_ns$").mean()
    # Sends and receives share groups and ranks, so that sums of means are means of sums.
    assert table["exposed_transfer_ns"].sum() == pytest.approx(mean["exposed_transfer_ns"], rel=1e-9)
    assert table["exposed_wait_ns"].sum() == pytest.approx(mean["exposed_wait_ns"], rel=1e-9)
    assert table["not_separable_ns"].sum() == pytest.approx(mean["exposed_unmatched_ns"], rel=1e-9)
    pieces = table.reindex(columns=["exposed_transfer_ns", "exposed_wait_ns", "not_separable_ns"]).sum(axis=1)
    assert pieces.to_numpy() == pytest.approx(table["exposed_comm_ns"].to_numpy())
