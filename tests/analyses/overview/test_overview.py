"""What all other analyses come to: their figures are those of the analyses that they put together."""

import pandas as pd
import pytest

from tests import once
from tests.builders import rank_trace
from traceanalyzer.analyses import overview, run
from traceanalyzer.meaning.vocabulary import COMM_PARTS, IDLE_PARTS, PARTS
from traceanalyzer.report.words import over_ranks_of, split, split_steps, time_parts_of

CAPTURES = ["ddp", "moe", "pp", "nsys_naive"]


@pytest.mark.parametrize("name", CAPTURES)
def test_parts_of_a_mean_step_are_the_headlines_and_add_up(name):
    results = once.results(name)
    head, parts = (results[each].to_frame().set_index("rank") for each in ("headline", "time_parts"))
    steps = head["steps"].fillna(1)
    for part in PARTS:
        assert parts[part.column].tolist() == pytest.approx((head[part.column] / steps).tolist())
        assert parts[part.share].tolist() == head[part.share].tolist(), "the same quotient, to the last digit"
    for whole, own in (("exposed_comm_ns", COMM_PARTS), ("idle_ns", IDLE_PARTS)):
        total = parts[[part.column for part in own]].sum(axis=1)
        assert total.tolist() == pytest.approx(parts[whole].tolist())


def test_a_gpu_needs_its_step_without_waits_and_idling_and_a_host_its_own_range():
    for row in once.results("ddp")["time_parts"].rows():
        assert row["gpu_needs_ns"] == row["compute_ns"] + row["exposed_transfer_ns"] + row["exposed_copy_ns"]
    late, waiting = once.results("ddp")["time_parts"].rows()
    assert late["host_needs_ns"] > 0.99 * late["window_ns"]
    assert waiting["host_needs_ns"] < 0.7 * waiting["window_ns"]
    (row,) = run([rank_trace([("compute", 0, 10)])], ["time_parts"])["time_parts"].rows()
    assert (row["host_needs_ns"], row["gpu_needs_ns"], row["steps"]) == (None, None, None), "no step, no need of one"


def test_over_ranks_are_the_mean_and_the_ends_of_the_ranks_cells():
    results = once.results("ddp")
    over, idle = results["over_ranks"], results["headline"].to_frame().set_index("rank")["idle_pct"]
    row = over.of("idle_pct")
    assert (row["mean_pct"], row["least_pct"], row["most_pct"]) == (idle.mean(), idle.min(), idle.max())
    assert (row["least_rank"], row["most_rank"], row["mean_ns"]) == (1, 0, None)
    assert over.of("mfu_pct")["mean_pct"] == pytest.approx(results["mfu"].by_rank().mean())
    assert over.of("window_ns")["mean_ns"] == results["headline"].to_frame()["step_mean_ns"].mean()
    assert over.of("comm_ns") == over.of("overlapped_comm_ns"), "no such row: no value"


@pytest.mark.parametrize("name", CAPTURES)
def test_a_step_over_ranks_is_the_mean_of_its_rows(name):
    results = once.results(name)
    rows, over = results["step_time_parts"].to_frame(), results["steps_over_ranks"].to_frame()
    assert len(rows) == results["steps"].to_frame().dropna(subset=["step", "window_ns"]).shape[0] > 0
    means = rows.groupby("step")[["window_ns", "compute_ns", "idle_ns"]].mean().reset_index(drop=True)
    pd.testing.assert_frame_equal(over[list(means)].astype("float64"), means.astype("float64"))
    assert over["longest_ns"].tolist() == rows.groupby("step")["window_ns"].max().tolist()


def test_where_an_analysis_failed_what_is_left_is_still_split():
    results = once.results("ddp")
    lost = {name: type(results[name]).without_rows() for name in ("idle", "time_parts", "over_ranks", "mfu")}
    left = {**results, **lost, "step_time_parts": type(results["step_time_parts"]).without_rows()}
    assert [part.column for part in split(left).parts][-1] == "idle_ns"
    assert time_parts_of(left).to_frame()["compute_pct"].tolist() == pytest.approx([24.8124, 27.8073], abs=1e-4)
    assert over_ranks_of(left).of("idle_pct") == results["over_ranks"].of("idle_pct")
    assert over_ranks_of(left).of("mfu_pct")["ranks"] == 0
    table, parts = split_steps(left)
    assert (len(table), parts[-1].column) == (6, "idle_ns")


def test_a_capture_without_gpu_work_has_none_of_it():
    results = run([rank_trace([])], ["headline", "time_parts", "over_ranks", "unlike_ranks", "steps_over_ranks"])
    assert [len(result) for result in results.values()] == [0] * 5
    assert overview.leaves(results["time_parts"].table)
    assert overview.OverRanks.without_rows().of("idle_pct")["mean_pct"] is None


def test_operators_over_ranks_are_a_mean_ranks():
    results = once.results("moe")
    rows, over = results["operators"].to_frame(), results["operators_over_ranks"].to_frame()
    assert over["total_ns"].sum() == pytest.approx(rows["gpu_own_ns"].sum() / 2)
    assert over["share_pct"].sum() == pytest.approx(100)
    first, own = over.iloc[0], rows[rows["operator"] == over["operator"].iloc[0]]
    assert first["calls"] == own["calls"].sum() / 2
    assert first["mean_ns"] == own["gpu_own_ns"].sum() / own["calls"].sum()


def test_the_path_over_ranks_adds_up_to_it():
    results = once.results("moe")
    over = results["path_over_ranks"].to_frame()
    assert over["path_ns"].sum() == results["critical_path"].table["window_ns"].iloc[0]
    assert over["path_pct"].sum() == pytest.approx(100)
    assert over["path_ns"].is_monotonic_decreasing


def test_receivers_and_dispatches_are_the_senders_and_the_ranks_together():
    """The captured job sends 6144 rows to rank 0 and 2048 to rank 1 at first."""
    results = once.results("moe")
    sent, received = results["exchange_sends"].to_frame(), results["exchange_receivers"].to_frame()
    assert received["size_bytes"].sum() == sent["size_bytes"].sum()
    dispatched = received[received["direction"] == "dispatch"].set_index("rank")
    assert dispatched["of_mean"].tolist() == [1.375, 0.625]
    loads, own = results["dispatch_loads"].to_frame(), results["exchanges"].to_frame()
    own = own[(own["direction"] == "dispatch") & own["step"].notna()]
    assert loads["load_bytes"].sum() == own["load_bytes"].sum()
    assert {*loads["hot_rank"]} == {0}
