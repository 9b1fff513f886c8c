"""What the other ranks' files show of one: times in another unit, another rank's operations."""

import pytest

import traceanalyzer as ta
from tests.simulator import capture, kineto, run, spoiled, workloads
from tests.simulator.faults import Fault


@pytest.fixture(scope="module")
def recorded():
    return {ranks: capture(run(workloads.ddp(ranks=ranks, steps=4))) for ranks in (2, 4)}


def found(recorded, spoil, folder):
    kineto.write(recorded, folder)
    spoil(folder)
    table = ta.analyse(ta.load(folder), "integrity")["integrity"].table
    table = table[table["severity"].isin(["high", "medium"])]
    return {check: own["rank"].dropna().tolist() for check, own in table.groupby("check")}


@pytest.mark.parametrize("ranks", [2, 4])
def test_times_in_another_unit_are_that_and_nothing_else(ranks, recorded, tmp_path):
    assert found(recorded[ranks], spoiled.in_nanoseconds(1), tmp_path) == {"another_unit": [1]}


def test_one_file_as_two_ranks(recorded, tmp_path):
    assert found(recorded[4], spoiled.relabelled(0, 3), tmp_path) == {"copies_of_a_rank": []}


def test_a_rank_that_computes_for_twenty_times_as_long_has_its_unit(tmp_path):
    slow = capture(run(workloads.ddp(ranks=4, steps=4, faults=(Fault("throttle", 0, (1,), None, 20.0),))))
    assert found(slow, lambda _folder: None, tmp_path) == {}
