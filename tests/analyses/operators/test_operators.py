"""Operators: who launched what, each GPU operation once; forward linked to backward; what is recomputed."""

import time

import pytest

from tests.fuzz.outcome import MOST_SECONDS
from tests.programs import program
from tests.samples import sample
from traceanalyzer.analyses import run

NODE = "autograd::engine::evaluate_function: MmBackward0"


def rows(trace, name="operators"):
    return {row["operator"]: row for row in run([trace], [name])[name].rows()}


def test_a_nest_of_a_hundred_thousand_levels_is_summed_up_within_seconds():
    """A file of some kilobytes can hold it, and must not keep a report waiting."""
    depth = 100_000
    host = [("aten::outer", 0, 3 * depth), *(("aten::inner", 1 + n, 3 * depth - n) for n in range(depth))]
    trace = program(host, [("gemm", 4 * depth, 4 * depth + 7, {"launch": depth + 1})])
    began = time.process_time()
    found = rows(trace)
    assert time.process_time() - began < MOST_SECONDS
    assert {name: (row["calls"], row["gpu_own_ns"], row["gpu_total_ns"]) for name, row in found.items()} == {
        "aten::outer": (1, 0, 7),
        "aten::inner": (depth, 7, 7),
    }


def test_own_time_counts_each_operation_once_and_total_includes_callees():
    host = [("aten::linear", 0, 100), ("aten::mm", 10, 40), ("aten::add", 50, 60)]
    gpu = [("gemm", 200, 210, {"launch": 20}), ("splitK", 210, 213, {"launch": 30}), ("add", 220, 224, {"launch": 55})]
    found = rows(program(host, gpu))
    assert {name: (row["gpu_ops"], row["gpu_own_ns"], row["gpu_total_ns"]) for name, row in found.items()} == {
        "aten::mm": (2, 13, 13),
        "aten::add": (1, 4, 4),
        "aten::linear": (0, 0, 17),
    }
    assert {name: (row["host_self_ns"], row["host_total_ns"]) for name, row in found.items()} == {
        "aten::mm": (30, 30),
        "aten::add": (10, 10),
        "aten::linear": (60, 100),
    }


def test_forward_is_linked_to_backward_by_the_last_operator_with_the_sequence_number():
    host = [
        ("aten::linear", 0, 10, {"sequence": 7}),
        ("aten::mm", 2, 8, {"sequence": 7}),
        (NODE, 20, 40, {"sequence": 7, "forward_thread": 1, "thread": 2}),
        ("MmBackward0", 21, 39, {"sequence": 7, "forward_thread": 1, "thread": 2}),
        ("aten::mul", 25, 30, {"thread": 2}),
    ]
    gpu = [("gemm", 50, 60, {"launch": 3}), ("mul", 60, 64, {"launch": 26, "thread": 2})]
    found = rows(program(host, gpu))
    assert (found["aten::mm"]["autograd"], found["aten::mul"]["autograd"]) == ("forward", "backward")


def test_forward_work_inside_the_backward_pass_is_recompute():
    host = [
        (NODE, 0, 100, {"sequence": 3, "forward_thread": 1}),
        ("aten::linear", 10, 50, {"sequence": 9, "forward_thread": 0}),
        ("aten::mm", 20, 40),
        ("aten::add", 60, 70),
        ("aten::copy_", 200, 210),
    ]
    found = rows(program(host))
    assert {name: row["autograd"] for name, row in found.items() if name.startswith("aten")} == {
        "aten::linear": "recompute",
        "aten::mm": "recompute",
        "aten::add": "backward",
        "aten::copy_": None,
    }


@pytest.mark.parametrize("name", ["ddp", "fsdp_full", "pp", "moe"])
def test_gpu_time_by_operator_adds_up_to_all_operations(name):
    ranks = sample(name).ranks
    results = run(ranks, ["operators", "operator_shapes", "operator_kernels", "categories"])
    for trace in ranks:
        total = int((trace.gpu_ops["end_ns"] - trace.gpu_ops["start_ns"]).sum())
        for result, column in (("operators", "gpu_own_ns"), ("operator_shapes", "gpu_own_ns"),
                               ("operator_kernels", "gpu_ns"), ("categories", "gpu_ns")):  # fmt: skip
            table = results[result].table
            assert int(table.loc[table["rank"] == trace.rank, column].sum()) == total, result
