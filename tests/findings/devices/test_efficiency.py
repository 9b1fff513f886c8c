"""Rules about busy GPUs that do little: when they speak and when they must not."""

import re
from dataclasses import replace

import pytest

from tests import once
from tests.asked import said_of
from tests.programs import program
from traceanalyzer.analyses import run
from traceanalyzer.findings.devices import efficiency

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


def test_tensor_cores_unused_shows_the_products_and_the_peaks():
    trace = program([("aten::mm", 0, 10, FLOAT)], [(SGEMM, 20, 120, {"launch": 5})])
    (found,) = efficiency.tensor_cores_unused(**run([trace], TENSOR_CORES))
    assert found.severity == "high"
    assert found.title == (
        "Matrix work runs without tensor cores: 100 ns on rank 0 (100 % of its compute). "
        "In TF32 it takes at most 86 ns less on rank 0."
    )
    assert found.evidence == ({"rank": 0, "share_of_compute_pct": 100.0, "off_tensor_cores_ns": 100.0},)
    assert "67 in FP32, 495 in TF32, 989 in BF16" in found.recommendation
    assert found.gain_ns == round(100 * (1 - 66.9 / 494.7))


def test_of_types_that_are_not_known_no_gain_is_told():
    (found,) = efficiency.tensor_cores_unused(**run([program(gpu=[(SGEMM, 0, 100)])], TENSOR_CORES))
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
    found = efficiency.tensor_cores_unused(**run([trace], TENSOR_CORES))
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
    (found,) = efficiency.tensor_cores_unused(**run([trace], TENSOR_CORES))
    assert found.gain_ns == round(100 * (1 - 15.7 / 125))
    assert "16 in FP32, 125 in FP16" in found.recommendation


def test_every_rank_without_tensor_cores_is_named():
    results = once.results("pp")
    (found,) = efficiency.tensor_cores_unused(**{name: results[name] for name in TENSOR_CORES})
    assert "87.4 ms a step on rank 1 (82 % of its compute), 50.5 ms on rank 0." in found.title
    assert [row["rank"] for row in found.evidence] == [1, 0]


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
    (found,) = efficiency.tensor_cores_unused(**results)
    assert (found.part_of == "lateness of ranks 0") == is_why


def test_a_rank_without_compute_beside_one_without_tensor_cores():
    traces = [program(gpu=[(SGEMM, 0, 50)]), program(gpu=[("nccl", 0, 50, {"kind": "comm"})]).renumbered(1, "test")]
    (found,) = (finding for finding in said_of(*traces) if finding.rule == "tensor_cores_unused")
    assert [row["rank"] for row in found.evidence] == [0]


def test_what_tf32_wins_is_not_known_of_other_types():
    double = FLOAT | {"dtypes": '["double","double"]'}
    trace = program(
        [("aten::mm", 0, 10, FLOAT), ("aten::mm", 10, 20, double)],
        [(SGEMM, 20, 120, {"launch": 5}), ("ampere_dgemm_64x64_nn", 120, 220, {"launch": 15})],
    )
    (found,) = efficiency.tensor_cores_unused(**run([trace], TENSOR_CORES))
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


@pytest.mark.parametrize(
    ("durations", "who"),
    [
        pytest.param((10_000, 10_000), "The GPUs are busy", marks=pytest.mark.thorough),
        ((100, 10_000), "The GPU of rank 1 is busy"),
    ],
    ids=["all", "one stage of a pipeline"],
)
def test_low_mfu_says_of_which_gpus_it_is(durations, who):
    host = [("aten::mm", 1, 5, BF16), ("aten::mm", 11, 15, BF16)]
    ranks = []
    for rank, duration in enumerate(durations):
        gpu = [(NVJET, 100, 100 + duration, {"launch": 2}), (NVJET, 10_100, 10_100 + duration, {"launch": 12})]
        trace = program(host, gpu, steps=[(0, 10), (10, 20)])
        ranks.append(replace(trace, meta=replace(trace.meta, rank=rank)))
    (found,) = (finding for finding in said_of(*ranks) if finding.rule == "low_mfu")
    assert found.title.startswith(f"{who}, but model FLOPs are ")


def test_tensor_cores_matter_little_to_a_gpu_that_waits():
    (found,) = said_of(program(gpu=[(SGEMM, 0, 50), (ELEMENT, 950, 1000)]))
    assert (found.rule, found.severity) == ("tensor_cores_unused", "low")


def test_low_mfu_of_a_rank_that_is_late_by_its_compute_is_said_already(monkeypatch):
    host, gpu = [("aten::mm", 1, 5, BF16), ("aten::mm", 11, 15, BF16)], [(100, 2), (10_100, 12)]
    kernels = [(NVJET, start, start + 10_000, {"launch": launch}) for start, launch in gpu]
    trace = program(host, kernels, steps=[(0, 10), (10, 20)], device_name="NVIDIA H200")
    held = run([trace], ("mfu", "headline", "episodes", "operators"))
    (found,) = efficiency.low_mfu(**held)
    assert "recomputation" not in found.recommendation  # no operator is of gradients
    monkeypatch.setattr(efficiency, "said_with_gain", lambda _: [{"cause": "copies", "ranks": "0"}])
    assert len(efficiency.low_mfu(**held)) == 1
    monkeypatch.setattr(efficiency, "said_with_gain", lambda _: [{"cause": "compute", "ranks": "0"}])
    assert efficiency.low_mfu(**held) == []
