import pandas as pd
import pytest

from tests.diff.captured import capture, steady
from traceanalyzer.diff import joins
from traceanalyzer.diff.captures import STEP, Capture


def kernels(*rows, steps=(2, 3)):
    frame = pd.DataFrame(rows, columns=["rank", "name", "calls", "total_ns"]).assign(kind="compute", activity="kernel")
    return Capture("run", "traces", {"kernels": frame}, steps, is_exact=True)


def joined(base, other, analysis="kernels"):
    return next(table for table in joins.tables(base, other, STEP) if table.analysis == analysis)


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
    for table in joins.tables(run, run, STEP):
        assert set(table.frame["status"]) <= {"SAME"}
        assert not table.frame.filter(like="change_").fillna(0).to_numpy(dtype=float).any()


def test_unknown_bytes_stay_unknown():
    def comm(*sizes):
        rows = [(0, "all_reduce", "Float", 1, 10, size) for size in sizes]
        frame = pd.DataFrame(rows, columns=["rank", "collective", "dtype", "calls", "total_ns", "size_bytes"])
        return Capture("run", "traces", {"nccl": frame.convert_dtypes()}, (1,), is_exact=True)

    row = joined(comm(5, None), comm(5, 6), "nccl").frame.iloc[0]
    assert pd.isna(row["base_size_bytes"])
    assert row["other_size_bytes"] == 11
    assert pd.isna(row["change_size_bytes"])


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
