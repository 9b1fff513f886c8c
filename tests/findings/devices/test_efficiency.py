"""Rules about busy GPUs that do little: when they speak and when they must not."""

import re

import pytest

from tests import once
from tests.asked import said_of
from tests.programs import program
from traceanalyzer.analyses import run
from traceanalyzer.findings.devices import kernels

NVJET, SGEMM, ELEMENT = "nvjet_sm90_tst_192x128", "ampere_sgemm_128x64_nn", "void vectorized_elementwise_kernel<4>"
FLOAT = {"shapes": "[[1000,1000],[1000,1000]]", "dtypes": '["float","float"]'}
BF16 = FLOAT | {"dtypes": '["c10::BFloat16","c10::BFloat16"]'}


def rules(trace):
    return [finding.rule for finding in said_of(trace)]


@pytest.mark.parametrize(
    ("gpu", "speaks"),
    [
        ([(SGEMM, 0, 20), (ELEMENT, 20, 100)], True),
        ([(SGEMM, 0, 19), (ELEMENT, 20, 101)], False),
        ([(NVJET, 0, 100)], False),
        ([("my_gemm", 0, 100)], False),
        ([(SGEMM, 0, 20), (ELEMENT, 20, 100), ("nccl", 100, 600, {"kind": "comm"})], True),
        ([(SGEMM, 0, 20), (ELEMENT, 970, 1000)], False),
        ([], False),
    ],
    ids=[
        "a fifth",
        "less",
        "on tensor cores",
        "names do not say",
        "communication does not count",
        "little of the step",
        "nothing",
    ],
)
def test_tensor_cores_unused(gpu, speaks):
    assert ("tensor_cores_unused" in rules(program(gpu=gpu))) == speaks


TENSOR_CORES = ("categories", "efficiency", "headline", "ranks", "kernels", "episodes")


def test_of_types_that_are_not_known_no_gain_is_told():
    (found,) = kernels.tensor_cores_unused(**run([program(gpu=[(SGEMM, 0, 100)])], TENSOR_CORES))
    assert found.gain_ns is None
    assert "TF32" not in found.title
    assert "The gain" not in found.caveat


@pytest.mark.parametrize(
    ("device", "kernel", "advised"),
    [
        ("NVIDIA GeForce GTX 1080 Ti", "maxwell_sgemm_128x64_nn", None),
        (None, "maxwell_sgemm_128x64_nn", None),
        ("Tesla V100-SXM2-32GB", "volta_sgemm_128x64_nn", {"float16"}),
        ("NVIDIA GeForce RTX 2080 Ti", "turing_sgemm_128x64_nn", {"float16"}),
        (None, "volta_scudnn_128x64_relu_small_nn_v1", {"float16"}),
        ("NVIDIA A10G", SGEMM, {"bfloat16", "TF32"}),
        ("AMD Instinct MI250X", "void gemv_kernel", {"bfloat16"}),
        (None, "void gemv_kernel", {"bfloat16", "TF32"}),
    ],
)
def test_no_type_is_advised_that_the_gpu_has_no_tensor_cores_for(device, kernel, advised):
    trace = program([("aten::mm", 0, 10, FLOAT)], [(kernel, 20, 120, {"launch": 5})], device_name=device)
    found = kernels.tensor_cores_unused(**run([trace], TENSOR_CORES))
    said = {
        each
        for each in ("float16", "bfloat16", "TF32")
        for one in found
        if re.search(rf"\b{each}\b", one.recommendation)
    }
    assert said == (advised or set())
    assert bool(found) == (advised is not None)


def test_what_float16_wins_where_there_is_no_tf32():
    trace = program([("aten::mm", 0, 10, FLOAT)], [("volta_sgemm_128x64_nn", 20, 120, {"launch": 5})],
                    device_name="Tesla V100-SXM2-32GB")  # fmt: skip
    (found,) = kernels.tensor_cores_unused(**run([trace], TENSOR_CORES))
    assert found.gain_ns == round(100 * (1 - 15.7 / 125))
    assert "16 in FP32, 125 in FP16" in found.recommendation


@pytest.mark.parametrize(("ranks", "is_why"), [({0}, True), ({1}, False), ({0, 1}, False)])
def test_where_only_the_late_rank_has_none_that_is_why(ranks, is_why):
    results = {name: once.results("pp")[name] for name in TENSOR_CORES}
    late = once.results("ddp_straggler")["episodes"]
    own = late.table.assign(ranks="0")
    held = results["categories"].table["rank"].isin(ranks)
    results |= {
        "episodes": type(late)(own),
        "categories": type(results["categories"])(results["categories"].table[held]),
    }
    (found,) = kernels.tensor_cores_unused(**results)
    assert (found.part_of == "lateness of ranks 0") == is_why


def test_what_tf32_wins_is_not_known_of_other_types():
    double = FLOAT | {"dtypes": '["double","double"]'}
    trace = program(
        [("aten::mm", 0, 10, FLOAT), ("aten::mm", 10, 20, double)],
        [(SGEMM, 20, 120, {"launch": 5}), ("ampere_dgemm_64x64_nn", 120, 220, {"launch": 15})],
    )
    (found,) = kernels.tensor_cores_unused(**run([trace], TENSOR_CORES))
    assert found.gain_ns is None


@pytest.mark.parametrize(
    ("gpu", "speaks"),
    [
        ([(ELEMENT, 0, 50), (NVJET, 50, 100)], True),
        ([(ELEMENT, 0, 49), (NVJET, 49, 100)], False),
        ([(ELEMENT, 0, 40), (NVJET, 960, 1000)], False),
    ],
    ids=["half", "less", "the GPU waits most of the time"],
)
def test_memory_bound_kernels(gpu, speaks):
    assert ("memory_bound_kernels" in rules(program(gpu=gpu))) == speaks


@pytest.mark.parametrize(
    ("duration", "gap", "device", "speaks"),
    [
        (10_000, 0, "NVIDIA H200", True),
        (4_000, 0, "NVIDIA H200", False),
        (4_000, 20_000, "NVIDIA H200", False),
        (10_000, 0, "Abacus 3000", False),
    ],
    ids=["busy and slow", "busy and fast", "waiting", "unknown peak"],
)
def test_low_mfu(duration, gap, device, speaks):
    step = duration + gap
    host = [("aten::mm", 1, 5, BF16), ("aten::mm", 11, 15, BF16)]
    gpu = [(NVJET, 100, 100 + duration, {"launch": 2}), (NVJET, 100 + step, 100 + step + duration, {"launch": 12})]
    assert ("low_mfu" in rules(program(host, gpu, steps=[(0, 10), (10, 20)], device_name=device))) == speaks


def test_tensor_cores_matter_little_to_a_gpu_that_waits():
    (found,) = said_of(program(gpu=[(SGEMM, 0, 50), (ELEMENT, 950, 1000)]))
    assert (found.rule, found.severity) == ("tensor_cores_unused", "low")
