"""Operators: who launched what, each GPU operation once; forward linked to backward; what is recomputed."""

import json

import numpy as np
import pytest

from tests import once
from tests.programs import program
from tests.samples import sample
from traceanalyzer.analyses import run
from traceanalyzer.analyses.operators.operator_tree import OperatorTree

NODE = "autograd::engine::evaluate_function: MmBackward0"


def rows(trace, name="operators"):
    return {row["operator"]: row for row in run([trace], [name])[name].rows()}


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


def test_operations_without_launch_or_operator_have_rows_of_their_own():
    gpu = [
        ("a", 0, 5),
        ("b", 5, 7, {"launch": 1}),
        ("c", 7, 8, {"launch": 15}),
        ("d", 8, 9, {"launch": 15, "thread": 2}),
    ]
    found = rows(program([("aten::mm", 10, 20)], gpu))
    assert {name: row["gpu_own_ns"] for name, row in found.items()} == {
        "(no launch recorded)": 5,
        "(outside any operator)": 3,
        "aten::mm": 1,
    }
    assert found["(no launch recorded)"]["calls"] is None
    assert found["(no launch recorded)"]["host_self_ns"] is None


def test_an_operator_inside_its_like_counts_once_in_totals():
    host = [("aten::sum", 0, 10), ("aten::sum", 2, 8)]
    found = rows(program(host, [("reduce", 20, 26, {"launch": 3})]))["aten::sum"]
    assert (found["calls"], found["host_total_ns"], found["gpu_total_ns"], found["gpu_own_ns"]) == (2, 10, 6, 6)


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
    assert found["aten::mm"]["backward_gpu_ns"] == 4
    assert found["aten::linear"]["backward_gpu_ns"] is None
    assert (found["aten::mm"]["autograd"], found["aten::mul"]["autograd"]) == ("forward", "backward")


def test_backward_work_of_what_a_node_recomputes_belongs_where_the_first_forward_pass_did():
    step = {"sequence": 4, "forward_thread": 1, "thread": 2}
    host = [
        ("CheckpointFunction", 0, 5, {"sequence": 4}),
        ("CheckpointFunctionBackward", 20, 60, step),
        ("aten::mm", 21, 30, {"sequence": 9, "thread": 2}),
        ("MmBackward0", 40, 50, {"sequence": 9, "forward_thread": 2, "thread": 2}),
        ("aten::t", 42, 44, {"thread": 2}),
    ]
    tree = OperatorTree.of(trace := program(host))
    names = trace.host_ops["name"].tolist()
    place = np.where(np.array(names) == "CheckpointFunction", 5, -1)
    assert dict(zip(names, tree.inherited(place), strict=True)) == dict.fromkeys(names, 5)
    assert tree.forward[names.index("MmBackward0")] == names.index("aten::mm")


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


@pytest.mark.parametrize(
    ("column", "first", "second"),
    [("shapes", "[[2,3],[3,4]]", "[[1,3],[3,4]]"), ("strides", "[[3,1],[4,1]]", "[[3,1],[1,3]]")],
)
def test_shapes_and_strides_tell_calls_apart(column, first, second):
    host = [("aten::mm", 0, 5, {column: first}), ("aten::mm", 5, 9, {column: second})]
    found = run([program(host)], ["operator_shapes"])["operator_shapes"].rows()
    assert {row[column]: row["host_self_ns"] for row in found} == {first: 5, second: 4}


def test_a_real_capture_shows_transposed_operands():
    table = once.results("ddp", ["operator_shapes"])["operator_shapes"].table
    products = table[(table["operator"] == "aten::mm") & table["strides"].notna()]
    columns = [json.loads(text)[0] for text in products["strides"]]
    assert {first == 1 for first, _ in columns} == {True, False}


def test_selected_steps_leave_other_steps_out():
    host = [("aten::mm", 1, 5), ("aten::mm", 11, 15), ("aten::mm", 21, 25)]
    gpu = [("a", 100, 101, {"launch": 2}), ("b", 110, 112, {"launch": 12}), ("c", 120, 124, {"launch": 22})]
    trace = program(host, gpu, steps=[(0, 10), (10, 20), (20, 30)], wanted="1")
    found = rows(trace)["aten::mm"]
    assert (found["calls"], found["gpu_own_ns"], found["host_total_ns"]) == (1, 2, 4)


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
