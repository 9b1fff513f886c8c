"""Achieved rates beside the device's peak; MFU a step; time by category."""

import pytest

from tests import once
from tests.programs import program
from traceanalyzer.analyses import run

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
    assert (found["gbytes_per_s"], found["peak_gbytes_per_s"]) == (1500, 4800)


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
    assert found[0]["peak_source"].startswith("NVIDIA H200")
    assert [row["is_complete"] for row in found.values()] == [True, True, True]


def test_mfu_takes_the_un_profiled_step_time_where_there_is_one():
    trace = program([("aten::mm", 1, 5, MM)], [(NVJET, 100, 150, {"launch": 2})], steps=[(0, 10)])
    (found,) = run([trace], ["mfu"], unprofiled_step_ns=4_000)["mfu"].rows()
    assert (found["step_ns"], found["step_source"], found["mfu_pct"]) == (
        4_000,
        "un-profiled",
        pytest.approx(50.54, rel=1e-3),
    )


def test_flops_of_a_real_step_are_six_for_each_parameter_and_token_and_attention():
    layers, width, tokens, length, vocabulary = 12, 768, 8 * 512, 512, 50304
    parameters = layers * 12 * width**2 + vocabulary * width
    expected = 6 * parameters * tokens + 12 * layers * width * length * tokens
    found = once.results("fsdp_full", ["mfu"])["mfu"].rows()
    assert [row["model_flops"] for row in found] == [expected] * 6
