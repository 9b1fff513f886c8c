"""Rules about busy GPUs that do little: when they speak and when they must not."""

import pytest

from tests.asked import said_of
from tests.programs import program

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
