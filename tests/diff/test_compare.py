from dataclasses import replace

import pandas as pd
import pytest

from tests.diff.captured import capture, side, steady
from traceanalyzer.diff import compare
from traceanalyzer.diff.metrics import value
from traceanalyzer.errors import UsageError
from traceanalyzer.job.run_info import Batch, RunInfo


def info(tokens=1000, accumulate=1, **more):
    return RunInfo(batch=Batch(tokens_per_step=tokens, grad_accum=accumulate), **more)


def two(base, other):
    return [side("base", base), side("other", other)]


def change(comparison, metric, column="change"):
    table = comparison.metrics
    return table[(table["metric"] == metric) & (table["run"] == "other")][column].iloc[0]


def test_parts_of_a_step_and_their_changes():
    made = compare(two(capture(steady(10, 5, 5)), capture(steady(12, 3, 1))))
    assert {name: change(made, name) for name in ("step_ns", "compute_ns", "exposed_comm_ns", "idle_ns", "comm_calls")} == {
        "step_ns": -4, "compute_ns": 2, "exposed_comm_ns": -2, "idle_ns": -4, "comm_calls": 0,
    }  # fmt: skip
    assert change(made, "step_ns", "change_pct") == -20
    assert made.ranking == ["other", "base"]


def test_a_run_with_itself_is_empty():
    run = capture(steady(10, 5, 5))
    assert compare(two(run, run)).is_empty
    assert not compare(two(run, capture(steady(10, 5, 6)))).is_empty


def test_swapping_runs_swaps_signs():
    sides = two(capture(steady(10, 5, 5)), capture(steady(12, 3, 1)))
    one = compare(sides)
    swapped = compare(sides[::-1])
    for metric in one.metrics["metric"].unique():
        rows = swapped.metrics[(swapped.metrics["metric"] == metric) & (swapped.metrics["run"] == "base")].iloc[0]
        for column in ("change", "change_pct_points"):
            there, back = change(one, metric, column), rows[column]
            assert (pd.isna(there) and pd.isna(back)) or there == -back


def test_repeats_give_a_test_and_one_capture_none():
    base = side("base", *(capture(steady(10, idle=idle)) for idle in (0, 1, 2)))
    other = side("other", *(capture(steady(30, idle=idle)) for idle in (0, 1, 2)))
    row = compare([base, other]).metrics.query("metric == 'step_ns' and run == 'other'").iloc[0]
    assert (row["repeats"], row["value"], row["std"], row["values"], row["significance"]) == (
        3,
        31,
        1,
        [30.0, 31.0, 32.0],
        "differs",
    )
    assert row["p_value"] < 1e-4
    assert change(compare([base, side("other", capture(steady(30)))]), "step_ns", "significance") == "cannot tell"


@pytest.mark.parametrize(
    ("base", "other", "refusal"),
    [
        ({"dtype": "bf16"}, {"dtype": "fp32"}, "dtype differs (bf16 | fp32)"),
        ({"model": {"layers": 12}}, {"model": {"layers": 24}}, "model differs"),
        ({"gpu": {"name": "A"}}, {"gpu": {"name": "B"}}, "GPU differs (A | B)"),
    ],
)
def test_what_is_refused(base, other, refusal):
    sides = two(capture(steady(10), info=info(**base)), capture(steady(10), info=info(**other)))
    with pytest.raises(UsageError) as error:
        compare(sides)
    assert refusal in str(error.value)
    assert "`analyze-traces diff --force` (in Python force=True) compares them all the same" in str(error.value)
    forced = compare(sides, force=True)
    assert forced.is_forced
    assert refusal in forced.fairness.refusals[0]


def test_another_batch_without_tokens_is_refused_and_with_tokens_given_per_token():
    base, other = capture(steady(10), info=info(1000)), capture(steady(30), info=info(4000))
    made = compare(two(base, other))
    assert made.fairness.scale.per_token
    # 10 ns for 500 tokens of each rank against 30 ns for 2,000: 20 and 15 ns per 1,000.
    assert [value(made.metrics, "step_ns", run) for run in made.runs] == [20, 15]
    with pytest.raises(UsageError, match="world size differs"):
        compare(two(capture(steady(10)), capture(steady(10, ranks=4))))


def test_a_step_is_not_compared_with_a_capture():
    from tests.builders import rank_trace

    whole = capture([rank_trace([("compute", 0, 10)], rank=rank, world_size=2) for rank in range(2)])
    with pytest.raises(UsageError, match="marks no complete step"):
        compare(two(capture(steady(10)), whole))
    made = compare(two(whole, whole))
    assert "whole captures are compared" in made.fairness.notes[0]


def with_flops(by_rank, *, covered_pct=100.0, **more):
    """A capture whose ranks do these model FLOPs in each of its steps."""
    made = capture(steady(10), **more)
    rows = [(rank, step, flops, covered_pct) for rank, flops in enumerate(by_rank) for step in made.steps]
    mfu = pd.DataFrame(rows, columns=["rank", "step", "model_flops", "covered_pct"])
    return replace(made, tables={**made.tables, "mfu": mfu})


@pytest.mark.parametrize(
    ("flops", "is_refused"), [((6, 4), False), ((6, 4.4), False), ((6, 4.6), True), ((5, 2), True)]
)
def test_other_model_flops_are_other_work_without_any_run_json(flops, is_refused):
    sides = two(with_flops((5e12, 5e12)), with_flops([1e12 * own for own in flops]))
    if not is_refused:
        assert "model FLOPs a step agree: 10 TFLOP | 10" in compare(sides).fairness.doubt
        return
    with pytest.raises(UsageError, match=r"model FLOPs a step differs \(10 TFLOP \| "):
        compare(sides)
    assert compare(sides, force=True).is_forced


def with_products(made, sizes):
    """The capture with a product of square matrices of each of these sizes."""
    products = [
        {"rank": rank, "phase": "forward", "product": f"[{size}, {size}] × [{size}, {size}]", "dtype": "c10::BFloat16",
         "calls": 4, "gpu_ns": 8, "calls_beside_comm": 0, "gpu_beside_comm_ns": 0}
        for size in sizes for rank in (0, 1)
    ]  # fmt: skip
    columns = ["rank", "product", "dtype", "calls"]
    return replace(
        made, tables={**made.tables, "matrix_products": pd.DataFrame(products, columns=None if products else columns)}
    )


@pytest.mark.parametrize(
    ("one", "other", "is_refused"),
    [
        ((768, 2304, 4096), (2048, 8192), True), ((768, 2304, 4096), (384, 768, 1152), False),
        ((768,), (), False), ((), (), False),
    ],
    ids=["another model", "its matrices cut", "only one tells", "none tells"],
)  # fmt: skip
def test_matrix_products_without_a_common_dimension_are_another_model(one, other, is_refused):
    sides = two(*(with_products(capture(steady(10)), sizes) for sizes in (one, other)))
    if not is_refused:
        assert compare(sides).fairness.is_fair
        return
    with pytest.raises(UsageError, match=r"size of matrix products differs \(768, 2304, 4096 \| 2048, 8192\)"):
        compare(sides)


@pytest.mark.parametrize(("sizes", "is_known"), [((768, 2304), True), ((768, 4096), False), ((), False)])
def test_the_same_products_are_the_same_work_without_any_run_json(sizes, is_known):
    one, other = (
        with_products(replace(made, tables={**made.tables, "mfu": made.tables["mfu"].assign(element_type="bf16")}), own)
        for made, own in ((with_flops((5e12, 5e12)), (768, 2304)), (with_flops((4.9e12, 5.1e12)), sizes))
    )
    assert (compare(two(one, other)).fairness.doubt is None) == is_known


def test_a_run_that_never_exchanged_gradients_is_refused():
    ops = steady(10, 5), steady(10)
    sides = two(capture(ops[0], info=info()), capture(ops[1], info=info()))
    with pytest.raises(UsageError, match="other launched no all-reduce"):
        compare(sides)


def test_a_run_whose_times_cannot_be_true_is_refused():
    run = capture(steady(10, 5, 5))
    rows = {"rank": [0], "check": ["operations_without_duration"], "severity": ["high"]}
    damaged = replace(run, tables={**run.tables, "integrity": pd.DataFrame(rows)})
    with pytest.raises(UsageError, match=r"cannot be compared:\n  - \S+: what the file of rank 0 tells cannot be true"):
        compare(two(run, damaged))
    assert compare(two(run, damaged), force=True).different.endswith("Their times are not comparable.")
