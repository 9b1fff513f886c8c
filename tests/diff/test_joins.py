import dataclasses

import pandas as pd
import pytest

from tests.diff.captured import capture, steady
from traceanalyzer.analyses import ANALYSES
from traceanalyzer.diff import joins
from traceanalyzer.diff.captures import STEP, Capture


def kernels(*rows, steps=(2, 3)):
    frame = pd.DataFrame(rows, columns=["rank", "name", "calls", "total_ns"]).assign(kind="compute", activity="kernel")
    return Capture("run", "traces", {"kernels": frame}, steps, is_exact=True)


def joined(base, other, analysis="kernels", **options):
    return next(table for table in joins.tables(base, other, STEP, **options) if table.analysis == analysis)


def test_statuses_and_differences_per_step_and_mean_over_ranks():
    base = kernels((0, "a", 4, 400), (1, "a", 4, 800), (0, "gone", 2, 20), (1, "same", 2, 100), (0, "slow", 2, 100))
    other = kernels((0, "a", 2, 400), (1, "a", 2, 800), (1, "new", 6, 60), (1, "same", 2, 104), (0, "slow", 2, 110))
    frame = joined(base, other).frame.set_index("name")
    assert [*frame["status"].items()] == [  # largest difference first
        ("new", "NEW"), ("gone", "REMOVED"), ("slow", "CHANGED"), ("same", "SAME"), ("a", "CHANGED"),
    ]  # fmt: skip
    a = frame.loc["a"]  # two steps, two ranks: (400 + 800) / 2 / 2
    assert (a["base_calls"], a["other_calls"], a["change_calls"]) == (2, 1, -1)
    assert (a["base_total_ns"], a["base_total_std_ns"], a["base_mean_ns"]) == (300, 100, 150)
    gone = frame.loc["gone"]  # on one rank of two
    assert (gone["base_calls"], gone["other_calls"], gone["change_total_ns"]) == (0.5, 0, -5)
    assert gone["change_total_ns_pct"] == -100
    assert pd.isna(frame.loc["new", "change_total_ns_pct"])


def test_equal_differences_are_in_the_order_of_names():
    run = kernels((0, "b", 2, 20), (0, "c", 2, 40), (0, "a", 2, 60))
    assert joined(run, run).frame["name"].tolist() == ["a", "b", "c"]


def test_swapping_runs_only_swaps_signs():
    base = kernels((0, "a", 4, 400), (0, "nvjet_1", 2, 20), (0, "b", 2, 100), (0, "x", 2, 100))
    other = kernels((0, "a", 2, 500), (0, "nvjet_2", 2, 60), (0, "b", 2, 105.5), (0, "y", 1, 1))
    one, two = joined(base, other).frame, joined(other, base).frame
    opposite = {"NEW": "REMOVED", "REMOVED": "NEW", "CHANGED": "CHANGED", "SAME": "SAME"}
    assert one["status"].map(opposite).tolist() == two["status"].tolist()
    for column in ("calls", "total_ns"):
        assert one[f"change_{column}"].tolist() == (-two[f"change_{column}"]).tolist()
        assert one[f"base_{column}"].tolist() == two[f"other_{column}"].tolist()
    assert one["change_share_pct_points"].tolist() == pytest.approx((-two["change_share_pct_points"]).tolist())


@pytest.mark.thorough
def test_a_run_with_itself_has_no_differences():
    run = capture(steady(10, 5, 3))
    for table in [*joins.tables(run, run, STEP), *joins.tables(run, run, STEP, by_rank=True)]:
        assert set(table.frame["status"]) <= {"SAME"}
        assert not table.frame.filter(like="change_").fillna(0).to_numpy(dtype=float).any()


def test_variants_are_one_row():
    table = joined(kernels((0, "nvjet_64x64", 2, 20)), kernels((0, "nvjet_128x64", 2, 60)))
    row = table.frame.iloc[0]
    assert (len(table.frame), row["status"], row["name"], row["other_name"]) == (
        1,
        "CHANGED",
        "nvjet_64x64",
        "nvjet_128x64",
    )
    assert (row["base_total_ns"], row["other_total_ns"]) == (10, 30)


def test_kernels_of_one_operation_are_added_up():
    base = kernels((0, "nvjet_a", 2, 20), (0, "nvjet_b", 2, 40))
    other = kernels((0, "nvjet_a", 4, 60))
    row = joined(base, other, "kernel_operations").frame.iloc[0]
    assert (row["operation"], row["base_total_ns"], row["other_total_ns"], row["change_calls"]) == ("gemm", 30, 30, 0)


def test_by_rank():
    frame = joined(kernels((0, "a", 2, 20), (1, "a", 2, 40)), kernels((1, "a", 2, 20)), by_rank=True).frame
    assert frame[["rank", "name", "status"]].to_numpy().tolist() == [[0, "a", "REMOVED"], [1, "a", "CHANGED"]]


def test_unknown_bytes_stay_unknown():
    def comm(*sizes):
        rows = [(0, "all_reduce", "Float", 1, 10, size) for size in sizes]
        frame = pd.DataFrame(rows, columns=["rank", "collective", "dtype", "calls", "total_ns", "size_bytes"])
        return Capture("run", "traces", {"nccl": frame.convert_dtypes()}, (1,), is_exact=True)

    row = joined(comm(5, None), comm(5, 6), "nccl").frame.iloc[0]
    assert pd.isna(row["base_size_bytes"])
    assert row["other_size_bytes"] == 11
    assert pd.isna(row["change_size_bytes"])


def test_a_run_without_any_row_of_a_table_and_ranks_without_one():
    with_comm, without = capture(steady(10, 5)), capture(steady(10))
    row = joined(without, with_comm, "nccl").frame.iloc[0]
    assert (row["status"], row["base_calls"], row["other_calls"], row["change_total_ns"]) == ("NEW", 0, 1, 5)
    row = joined(with_comm, without, "nccl").frame.iloc[0]
    assert (row["status"], row["base_calls"], row["other_calls"], row["change_total_ns"]) == ("REMOVED", 1, 0, -5)
    half = {**with_comm.tables, "nccl": with_comm.tables["nccl"].query("rank == 0")}
    row = joined(dataclasses.replace(with_comm, tables=half), without, "nccl").frame.iloc[0]
    assert row["base_calls"] == 0.5  # of two ranks one communicates


@pytest.mark.parametrize("column", [[None, None], [None, "Float"]])
def test_a_key_that_one_format_never_tells_is_not_joined_on(column):
    def comm(*dtypes):
        rows = [(0, f"all_reduce{number}", dtype, 1, 10) for number, dtype in enumerate(dtypes)]
        frame = pd.DataFrame(rows, columns=["rank", "collective", "dtype", "calls", "total_ns"])
        return Capture("run", "traces", {"nccl": frame}, (1,), is_exact=True)

    frame = joined(comm("Float", "Float"), comm(*column), "nccl").frame
    if column == [None, None]:
        assert frame[["collective", "status"]].to_numpy().tolist() == [["all_reduce0", "SAME"], ["all_reduce1", "SAME"]]
        assert "dtype" not in frame
    else:  # told by both, absent in one row
        assert sorted(frame["status"]) == ["NEW", "REMOVED", "SAME"]


def test_no_tables_of_a_capture_that_is_not_of_its_steps():
    run = capture(steady(10))
    assert joins.tables(run, Capture("x", "summary.json", run.tables, run.steps, is_exact=False), STEP) == []


@pytest.mark.parametrize(
    ("analysis", "column", "is_sum"),
    [("kernels", "total_ns", True), ("kernels", "calls", True), ("nccl", "size_bytes", True), ("kernels", "max_ns", False),
     ("kernels", "mean_ns", False), ("kernels", "rank", False), ("headline", "overlap_pct", False), ("steps", "start_ns", False),
     ("timeline", "launch_start_ns", False), ("memory", "peak_reserved_bytes", False), ("collectives", "busbw_gbps", False),
     ("nccl", "group_size", False), ("operators", "gpu_own_ns", True), ("launches", "delay_median_ns", False)],
)  # fmt: skip
def test_what_adds_up(analysis, column, is_sum):
    assert ANALYSES[analysis].result.columns[column].is_sum == is_sum


def test_a_table_is_judged_by_one_time_and_its_first_count():
    held = joins.compared(ANALYSES["nccl"].result.columns)
    assert (joins.leading_time(held), joins.leading_count(held)) == ("total_ns", "calls")


def test_what_is_of_a_moment_is_not_divided_by_steps():
    def run_with(peak):
        frame = pd.DataFrame(
            {
                "rank": [0, 1],
                "category": "activations",
                "blocks": 4,
                "peak_bytes": peak,
                "share_pct": 50.0,
                "most_bytes": peak,
            }
        )
        return Capture("run", "traces", {"memory_categories": frame}, (2, 3), is_exact=True)

    (row,) = joined(run_with(400), run_with(600), "memory_categories").frame.to_dict("records")
    assert (row["base_peak_bytes"], row["other_peak_bytes"], row["base_blocks"]) == (400, 600, 4)
