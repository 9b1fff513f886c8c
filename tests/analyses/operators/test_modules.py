"""The tree of modules and ranges, kernels below it, source lines, compiled kernels and CUDA graphs."""

from tests.programs import program
from traceanalyzer.analyses import run

NODE = "autograd::engine::evaluate_function: MmBackward0"
MODULES = [
    ("nn.Module: Net_0", 0, 100),
    ("nn.Module: Linear_0", 10, 40),
    ("nn.Module: Linear_1", 50, 90),
    ("train.py(12): forward", 5, 95),
    ("torch/nn/modules/linear.py(120): forward", 12, 38),
]
HOST = [
    ("aten::mm", 15, 30, {"sequence": 1}),
    ("aten::mm", 55, 70, {"sequence": 2}),
    (NODE, 200, 220, {"sequence": 2, "forward_thread": 1, "thread": 2}),
    ("aten::add", 205, 210, {"thread": 2}),
]
GPU = [
    ("gemm_a", 300, 310, {"launch": 20}),
    ("other", 305, 312),
    ("gemm_b", 320, 330, {"launch": 60}),
    ("add", 400, 407, {"launch": 206, "thread": 2}),
]


def rows(trace, name):
    return run([trace], [name])[name].rows()


def by_path(trace):
    return {(row["path"], row["autograd"]): row for row in rows(trace, "modules")}


def test_module_tree():
    found = by_path(program(HOST, GPU, modules=MODULES))
    assert {key: row["gpu_total_ns"] for key, row in found.items()} == {
        ("Net_0", "forward"): 20,
        ("Net_0", "backward"): 7,
        ("Net_0/Linear_0", "forward"): 10,
        ("Net_0/Linear_1", "forward"): 10,
        ("Net_0/Linear_1", "backward"): 7,
        ("(outside any module or range)", None): 7,
    }
    assert [*found] == [
        ("Net_0", "forward"),
        ("Net_0", "backward"),
        ("Net_0/Linear_1", "forward"),
        ("Net_0/Linear_1", "backward"),
        ("Net_0/Linear_0", "forward"),
        ("(outside any module or range)", None),
    ]
    net = found["Net_0", "forward"]
    assert (net["window_ns"], net["compute_ns"], net["idle_ns"]) == (30, 22, 8)
    assert (net["gpu_own_ns"], net["gpu_ops"], net["depth"], net["source"]) == (0, 2, 0, "module")
    assert found["Net_0/Linear_0", "forward"]["name"] == "Linear_0"


def test_own_time_of_the_tree_adds_up_to_all_operations():
    trace = program(HOST, GPU, modules=MODULES)
    total = int((trace.gpu_ops["end_ns"] - trace.gpu_ops["start_ns"]).sum())
    assert sum(row["gpu_own_ns"] for row in rows(trace, "modules")) == total


def test_kernels_have_path_operator_and_the_users_line():
    found = {row["kernel"]: row for row in rows(program(HOST, GPU, modules=MODULES), "operator_kernels")}
    assert [found[name]["path"] for name in ("gemm_a", "gemm_b", "add", "other")] == [
        "Net_0/Linear_0", "Net_0/Linear_1", "Net_0/Linear_1", None,
    ]  # fmt: skip
    assert (found["add"]["operator"], found["add"]["autograd"]) == ("aten::add", "backward")
    assert [found[name]["source"] for name in ("gemm_a", "add", "other")] == ["train.py(12): forward"] * 2 + [None]
    assert found["other"]["operator"] == "(no launch recorded)"
