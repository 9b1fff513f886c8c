"""The table of collectives adds up to what the bars show of communication."""

import pandas as pd
import pytest

import traceanalyzer as ta
from tests import once
from tests.samples import SAMPLES
from traceanalyzer.analyses import run
from traceanalyzer.analyses.communication.waits import CallWaits
from traceanalyzer.analyses.phases import comm_phases
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


def test_a_step_of_ddp():
    table, _ = _of("ddp")
    row = table.loc["all_reduce"]
    assert (row["calls"], row["size_bytes"], row["highest_rank"]) == (14, 650_864_640, 1)
    assert row["highest_exposed_ns"] == pytest.approx(45_406_053 + 2 / 3)
    assert row["not_separable_ns"] == 0, "every call is matched"


def test_calls_whose_ranks_do_not_wait_alike_have_no_rate():
    table, _ = _of("moe")
    assert table.loc["all_to_all", ["busbw_gbps", "peak_pct"]].isna().all()
    assert table.loc["all_reduce", "busbw_gbps"] > 0


@pytest.mark.parametrize("storage", ["python", "pyarrow"])
def test_what_the_trace_does_not_say_is_absent(storage):
    """The capture's peer-to-peer copies have neither process group nor element type."""
    with pd.option_context("mode.string_storage", storage):
        traces = ta.load([SAMPLES / "streams" / "broadcast3.json.gz"]).ranks
        table = run(traces, ["by_collective"])["by_collective"].to_frame()
    assert table["collective"].tolist() == ["peer_copy"]
    assert table[["group_label", "dtype"]].isna().all(axis=None)
    assert table["busbw_gbps"].between(340, 360).all()  # a copy waits for nobody: its duration is its transfer
    assert table["highest_rank"].notna().all()


def test_steps_without_communication_have_no_row():
    results = once.results("ddp")
    calls = results["call_waits"].table
    outside = CallWaits(calls[calls["step"].isna()])
    needs = ("calls", "exposed_calls", "groups", "ranks", "headline", "steps")
    assert not len(comm_phases.by_collective_across({}, outside, **{name: results[name] for name in needs}))
