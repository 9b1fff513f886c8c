"""The breakdown of real captures against a reading of their raw events that shares no code with this package."""

import json
import runpy
from functools import cache

import pytest

import traceanalyzer as ta
from tests import by_hand, xplane_builders
from tests.samples import SAMPLES, sample
from traceanalyzer.analyses import run

CAPTURES = [("symm", 2), pytest.param("pp_interleaved", 2, marks=pytest.mark.thorough)]


@cache
def raw(folder, rank):
    [path] = [path for path in (SAMPLES / folder).glob("*.json.gz") if f"rank{rank}" in path.name]
    return by_hand.kineto_events(path)


def assert_same(row, spent):
    assert row["compute_ns"] == spent["compute"]
    assert row["exposed_comm_ns"] == spent["comm"]
    assert row["exposed_copy_ns"] == spent["copy"]
    assert row["idle_ns"] == spent["idle"]
    assert row["window_ns"] == sum(spent.values())


@pytest.mark.parametrize(("folder", "ranks"), CAPTURES)
def test_whole_captures(folder, ranks):
    table = ta.breakdown(sample(folder)).to_frame().set_index("rank")
    for rank in range(ranks):
        assert_same(table.loc[rank], by_hand.split(by_hand.kineto(raw(folder, rank))))


@pytest.mark.parametrize(("folder", "ranks"), CAPTURES)
def test_the_windows_of_steps(folder, ranks):
    table = ta.steps(sample(folder)).to_frame()
    for rank in range(ranks):
        events = raw(folder, rank)
        own = table[(table["rank"] == rank) & table["step"].notna()].sort_values("start_ns")
        windows = by_hand.step_windows(events)
        assert windows
        for (low, high), (_, row) in zip(windows, own.iterrows(), strict=False):
            assert_same(row, by_hand.split(by_hand.kineto(events), low, high))


def test_jax_s_gpus_from_the_bytes(tmp_path):
    path = xplane_builders.write(tmp_path / "a.xplane.pb")
    table = ta.breakdown(ta.load(tmp_path)).to_frame().set_index("rank")
    operations = by_hand.xplane(path)
    assert sorted(operations) == [0, 1]
    for rank, own in operations.items():
        assert_same(table.loc[rank], by_hand.split(own))
        assert table.loc[rank, "exposed_comm_ns"] == 200


def test_the_table_of_others_traces_finds_a_figure_that_is_off():
    compared = runpy.run_path(str(SAMPLES.parent.parent / "experiments" / "others_traces.py"))["compared"]
    tables = run(sample("symm").ranks, ["breakdown", "steps"])
    results = {name: json.loads(table.to_frame().to_json(orient="records")) for name, table in tables.items()}
    differs, said = compared(SAMPLES / "symm", results)
    assert not differs
    assert said.startswith("2 ranks' whole capture and 4 complete steps: the same to the nanosecond.")
    results["breakdown"][1]["idle_ns"] += 3
    assert compared(SAMPLES / "symm", results) == (1, said.replace("the same to the nanosecond", "**3 ns off**"))
