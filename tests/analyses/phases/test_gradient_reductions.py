"""Reductions of gradients after the backward pass are backward's communication."""

import pandas as pd
import pytest

from tests import once
from tests.host_builders import host_trace
from traceanalyzer.analyses.phases.micro_steps import LEAST_BYTES, phases_with_reductions
from traceanalyzer.analyses.phases.phases import NAMES

RANGES = [("forward", 0, 20), ("backward", 20, 40), ("optimizer", 60, 80), ("forward", 100, 120)]

GRADIENTS = ("all_reduce", LEAST_BYTES)


@pytest.mark.parametrize(
    ("launches", "reductions", "phases"),
    [
        ([30, 50], {1: GRADIENTS}, ["backward", "backward"]),
        ([30, 50, 55], {1: ("all_reduce", 40_000), 2: ("reduce_scatter", 40_000)}, ["backward"] * 3),
        ([30, 50], {1: ("all_reduce", 4)}, ["backward", "unattributed"]),
        ([30, 50], {1: ("all_reduce", pd.NA)}, ["backward", "backward"]),
        ([30, 50], {1: ("all_gather", LEAST_BYTES)}, ["backward", "unattributed"]),
        ([10, 50], {1: GRADIENTS}, ["forward", "unattributed"]),
        ([30, 70, 90], {2: GRADIENTS}, ["backward", "optimizer", "unattributed"]),
        # Compute between them is not known to be backward's.
        ([30, 50, 55], {2: GRADIENTS}, ["backward", "unattributed", "backward"]),
        ([50], {0: GRADIENTS}, ["unattributed"]),
    ],
    ids=["gradients", "several together", "a loss", "unknown sizes", "another collective", "after forward",
         "after the optimizer", "after other work", "nothing known before"],
)  # fmt: skip
def test_reductions_after_backward(launches, reductions, phases):
    ops = [
        ("nccl" if place in reductions else "gemm", 1_000 + place, 1_001 + place, place + 1)
        for place in range(len(launches))
    ]
    trace = host_trace(ops, [("cudaLaunchKernel", time, time + 1) for time in launches], ranges=RANGES)
    calls = pd.DataFrame(
        [{"gpu_op": place, "collective": name, "size_bytes": size} for place, (name, size) in reductions.items()]
    ).astype({"size_bytes": "Int64"})
    assert [NAMES[code] for code in phases_with_reductions(trace, calls)] == phases


def test_a_capture_that_reduces_each_parameter_after_backward():
    results = once.results("nsys_naive", ["call_phases", "groups"])
    assert set(results["call_phases"].table["phase"]) == {"backward"}
