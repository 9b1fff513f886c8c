"""Kernels by name over all ranks, by hand."""

import pandas as pd
import pytest

from tests import once
from tests.programs import program
from traceanalyzer.analyses import run


def _of(*programs):
    ranks = [one.renumbered(rank, "test") for rank, one in enumerate(programs)]
    return run(ranks, ["kernels_over_ranks"])["kernels_over_ranks"].to_frame().set_index("name")


def test_a_rank_without_a_name_counts_as_0():
    table = _of(program([], [("gemm", 0, 100), ("gemm", 200, 500), ("add", 600, 700)]), program([], [("gemm", 0, 200)]))
    gemm, add = table.loc["gemm"], table.loc["add"]
    assert (gemm["calls"], gemm["total_ns"], gemm["mean_ns"], gemm["min_ns"], gemm["max_ns"]) == (
        1.5, 300, 200, 100, 300,
    )  # fmt: skip
    assert (add["calls"], add["total_ns"], add["mean_ns"]) == (0.5, 50, 100)
    assert table["share_pct"].to_dict() == pytest.approx({"gemm": 100 * 600 / 700, "add": 100 / 7})
    spread = ["lowest_total_ns", "lowest_rank", "highest_total_ns", "highest_rank"]
    assert gemm[spread].tolist() == [200, 1, 400, 0]
    assert add[spread].tolist() == [0, 1, 100, 0]


def test_a_single_rank_has_no_spread():
    row = _of(program([], [("gemm", 0, 100)])).loc["gemm"]
    assert (row["total_ns"], row["share_pct"]) == (100, 100)
    assert pd.isna(row[["lowest_total_ns", "lowest_rank", "highest_total_ns", "highest_rank"]]).all()


def test_waits_are_those_of_the_collectives():
    results = once.results("ddp")
    waits, of_each = results["collective_waits"].to_frame(), results["collectives"].to_frame()
    assert waits["wait_ns"].sum() == of_each["wait_ns"].sum() > 0
    assert not waits.duplicated(["rank", "collective"]).any()
