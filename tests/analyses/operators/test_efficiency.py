"""Achieved rates beside the device's peak; MFU a step; time by category."""

import json
from dataclasses import replace

import pytest

from tests import once
from tests.builders import rank_trace
from tests.programs import program
from traceanalyzer.analyses import run
from traceanalyzer.job.run_info import StatedWork

BF16 = '["c10::BFloat16","c10::BFloat16"]'
MM = {"shapes": "[[1000,1000],[1000,1000]]", "dtypes": BF16}
NVJET, SGEMM = "nvjet_sm90_tst_192x128", "ampere_sgemm_128x64_nn"


def rows(trace, name):
    return run([trace], [name])[name].rows()


def product(duration_ns, *, dtypes=BF16, kernel=NVJET, **more):
    host = [("aten::mm", 0, 10, {"shapes": MM["shapes"], "dtypes": dtypes})]
    return program(host, [(kernel, 20, 20 + duration_ns, {"launch": 5})], **more)


def test_rates_of_a_product():
    (found,) = rows(product(4_000), "efficiency")
    assert (found["flops"], found["bytes"], found["gpu_ns"]) == (2_000_000_000, 6_000_000, 4_000)
    assert (found["tflops_per_s"], found["gbytes_per_s"]) == (500.0, 1500.0)
    assert found["flops_per_byte"] == pytest.approx(1000 / 3)
    assert found["flops_pct"] == pytest.approx(100 * 500 / 989.4)
    assert found["bandwidth_pct"] == pytest.approx(100 * 1500 / 4800)


@pytest.mark.parametrize(
    ("kernel", "element_type", "peak"),
    [(SGEMM, "fp32", 66.9), ("cutlass_tensorop_s1688gemm_tf32", "tf32", 494.7), ("my_gemm", None, None)],
)
def test_32_bit_products_are_measured_by_what_the_kernel_uses(kernel, element_type, peak):
    (found,) = rows(product(4_000, dtypes='["float","float"]', kernel=kernel), "efficiency")
    assert (found["element_type"], found["peak_tflops_per_s"]) == (element_type, peak)


@pytest.mark.parametrize(
    ("types", "operator", "kernel", "size_bytes"),
    [
        ('["TensorList","TensorList"]', "aten::_foreach_add_", "at::multi_tensor_apply_kernel<M<2>, at::AddFunctor<double, 2, 2, 0>, x>", 8 * 36),
        ('["TensorList","TensorList"]', "aten::_foreach_copy_", "multi_tensor_apply_kernel<M<2>, CopyFunctor<c10::BFloat16, float, 2, 1, 1>, x>", 6 * 12),
        ('["TensorList","TensorList"]', "aten::_foreach_add_", "some_kernel<float>", None),
    ],
    ids=["one type", "two types", "no type"],
)  # fmt: skip
def test_lists_of_tensors_have_the_types_that_their_kernel_names(types, operator, kernel, size_bytes):
    host = [(operator, 0, 10, {"shapes": "[[[4],[8]],[[4],[8]]]", "dtypes": types})]
    (found,) = rows(program(host, [(kernel, 20, 30, {"launch": 5})]), "efficiency")
    assert found["bytes"] == size_bytes


def test_embedding_backward_and_the_fill_that_it_calls_both_count():
    shapes = {"shapes": "[[2,5,8],[2,5],[]]", "dtypes": '["float","long int","Scalar"]'}
    fill = {"shapes": "[[100,8],[]]", "dtypes": '["float","Scalar"]'}
    host = [("aten::embedding_dense_backward", 0, 30, shapes), ("aten::fill_", 5, 9, fill)]
    gpu = [("fill", 40, 45, {"launch": 6}), ("grad", 50, 57, {"launch": 20})]
    found = {row["operator"]: (row["gpu_ns"], row["bytes"]) for row in rows(program(host, gpu), "efficiency")}
    assert found == {"aten::embedding_dense_backward": (7, 4 * 160 + 8 * 10), "aten::fill_": (5, 4 * 800)}


def test_an_unknown_gpu_has_rates_but_no_shares():
    (found,) = rows(product(4_000, device_name="Abacus 3000"), "efficiency")
    assert found["tflops_per_s"] == 500.0
    assert (found["flops_pct"], found["bandwidth_pct"], found["peak_tflops_per_s"]) == (None, None, None)


def test_causal_attention_is_rated_by_what_is_needed():
    query = "[2,4,16,8]"
    attention = {
        "shapes": f"[{query},{query},{query},[],[]]",
        "dtypes": '["c10::BFloat16","c10::BFloat16","c10::BFloat16","Scalar","Scalar"]',
        "arguments": '["", "", "", "0.", "True"]',
    }
    host = [("aten::_scaled_dot_product_flash_attention", 0, 10, attention)]
    (found,) = rows(program(host, [("flash_fwd_kernel", 20, 30, {"launch": 5})]), "efficiency")
    assert (found["flops"], found["masked_flops"]) == (65536, 30720)
    assert found["tflops_per_s"] == pytest.approx((65536 - 30720) / 10 / 1000)


def test_mfu_of_a_step_is_by_its_own_window():
    host = [("aten::mm", 1, 5, MM), ("aten::mm", 11, 15, MM), ("aten::mm", 16, 18, MM), ("aten::mm", 21, 25, MM)]
    times = [(100, 2), (10_100, 12), (15_100, 17), (30_100, 22)]
    gpu = [(NVJET, start, start + 50, {"launch": launch}) for start, launch in times]
    trace = program(host, gpu, steps=[(0, 10), (10, 20), (20, 30)])
    found = {row["step"]: row for row in rows(trace, "mfu")}
    assert [(row["model_flops"], row["step_ns"]) for row in found.values()][:2] == [
        (2 * 10**9, 150),
        (4 * 10**9, 15_000),
    ]
    assert found[1]["mfu_pct"] == pytest.approx(100 * 4 * 10**9 / 15_000 / 1_000 / 989.4)
    assert (found[0]["element_type"], found[0]["gpu"], found[0]["covered_pct"]) == ("bf16", "H200 SXM", 100.0)
    assert [row["is_complete"] for row in found.values()] == [True, True, True]


def test_mfu_takes_the_un_profiled_step_time_where_there_is_one():
    trace = program([("aten::mm", 1, 5, MM)], [(NVJET, 100, 150, {"launch": 2})], steps=[(0, 10)])
    (found,) = run([trace], ["mfu"], unprofiled_step_ns=4_000)["mfu"].rows()
    assert (found["step_ns"], found["step_source"], found["mfu_pct"]) == (
        4_000,
        "un-profiled",
        pytest.approx(50.54, rel=1e-3),
    )


def test_mfu_leaves_recompute_out_and_says_what_it_does_not_cover():
    node = ("autograd::engine::evaluate_function: X", 0, 9, {"sequence": 1, "forward_thread": 1})
    host = [node, ("aten::mm", 1, 5, {**MM, "sequence": 2}), ("aten::mm", 6, 8, MM), ("my::gemm", 9, 10)]
    gpu = [(NVJET, 100, 130, {"launch": 2}), (NVJET, 130, 160, {"launch": 7}), (NVJET, 160, 200, {"launch": 9})]
    (found,) = rows(program(host, gpu, steps=[(0, 20)]), "mfu")
    assert (found["model_flops"], found["recompute_flops"], found["covered_pct"]) == (2 * 10**9, 2 * 10**9, 60.0)


def test_mfu_counts_causal_attention_in_full_and_beside_it_without_the_masked_part():
    attention = {
        "shapes": json.dumps([[2, 4, 16, 8]] * 6 + [[]] * 6),
        "dtypes": json.dumps(["c10::BFloat16"] * 6 + ["Scalar"] * 6),
        "arguments": json.dumps([""] * 11 + ["True"]),
    }
    host = [("aten::_scaled_dot_product_flash_attention_backward", 0, 10, attention)]
    (found,) = rows(program(host, [("flash_bwd_kernel", 20, 30, {"launch": 5})], steps=[(0, 20)]), "mfu")
    model = 8 * 2 * 4 * 16 * 16 * 8
    assert (found["model_flops"], found["recompute_flops"]) == (model, model // 4)
    assert found["masked_flops"] == model * 15 // 32
    assert found["unmasked_mfu_pct"] == pytest.approx(found["mfu_pct"] * 17 / 32)


def test_a_trace_without_shapes_has_no_mfu():
    assert rows(program([("aten::mm", 1, 5)], [(NVJET, 100, 150, {"launch": 2})], steps=[(0, 10)]), "mfu") == []


def test_flops_of_a_real_step_are_six_for_each_parameter_and_token_and_attention():
    layers, width, tokens, length, vocabulary = 12, 768, 8 * 512, 512, 50304
    parameters = layers * 12 * width**2 + vocabulary * width
    expected = 6 * parameters * tokens + 12 * layers * width * length * tokens
    found = once.results("fsdp_full", ["mfu"])["mfu"].rows()
    assert [row["model_flops"] for row in found] == [expected] * 6


def test_categories_tell_tensor_cores():
    gpu = [
        (NVJET, 0, 10),
        (SGEMM, 10, 14),
        ("my_gemm", 14, 15),
        ("elementwise_kernel", 20, 30),
        ("x", 30, 32, {"kind": "comm"}),
    ]
    found = {row["category"]: row for row in rows(program(gpu=gpu), "categories")}
    assert {name: row["gpu_ns"] for name, row in found.items()} == {"gemm": 15, "element-wise": 10, "communication": 2}
    assert (found["gemm"]["tensor_core_ns"], found["gemm"]["no_tensor_core_ns"]) == (10, 4)
    assert found["element-wise"]["tensor_core_ns"] is None


@pytest.mark.parametrize("has_run_json", [True, False])
def test_mfu_of_a_trace_without_operators_is_that_of_what_the_run_says(has_run_json):
    ops = [("compute", 0, 900, 1), ("compute", 1_000, 1_900, 101), ("compute", 2_000, 2_500, 201)]
    steps = [(0, 100), (100, 200), (200, 300)]
    bare = [rank_trace(ops, rank=rank, steps=steps, world_size=2) for rank in (0, 1)]
    traces = [replace(trace, meta=replace(trace.meta, device_name="NVIDIA H200")) for trace in bare]
    stated = {"stated_work": StatedWork(494.7e6, "bf16"), "unprofiled_step_ns": 1_000} if has_run_json else {}
    rows = run(traces, ["mfu"], **stated)["mfu"].rows()
    assert [row["rank"] for row in rows] == ([0, 0, 0, 1, 1, 1] if has_run_json else [])
    for row in rows:
        assert (row["mfu_pct"], row["element_type"], row["covered_pct"]) == (pytest.approx(50), "bf16", None)
