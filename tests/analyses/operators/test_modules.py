"""The tree of modules and ranges, kernels below it, source lines, compiled kernels and CUDA graphs."""

from dataclasses import replace

from tests.programs import program
from traceanalyzer.analyses import run
from traceanalyzer.analyses.operators.modules import Scopes
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.model.schema import LONGEST_NAME

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
    net = found["Net_0", "forward"]
    assert (net["window_ns"], net["compute_ns"], net["idle_ns"]) == (30, 22, 8)
    assert (net["gpu_own_ns"], net["gpu_ops"], net["depth"], net["source"]) == (0, 2, 0, "module")
    assert found["Net_0/Linear_0", "forward"]["name"] == "Linear_0"


def test_host_time_stands_in_the_row_of_the_pass_that_it_was_spent_in():
    hooks = [("forward", 0, 100), ("FSDP::pre_backward", 202, 215)]
    node, add = (HOST[2], HOST[3])
    trace = program([*HOST[:2], node, add], GPU, ranges=[hooks[0], (*hooks[1], {"thread": 2})])
    found = {key: row["host_ns"] for key, row in by_path(trace).items()}
    assert found["forward", "forward"] == 100
    assert found["FSDP::pre_backward", "backward"] == 13


def test_subtrees_stand_together_the_heaviest_first():
    ranges = [("a", 0, 10), ("a b", 10, 50), ("c", 20, 30), ("d", 50, 60)]
    gpu = [("k", 100 * start, 100 * start + length, {"launch": start}) for start, length in ((5, 3), (25, 5), (55, 9))]
    paths = [row["path"] for row in rows(program((), [*gpu, ("other", 9000, 9100)], ranges=ranges), "modules")]
    assert paths == ["d", "a b", "a b/c", "a", "(outside any module or range)"]


def test_own_time_of_the_tree_adds_up_to_all_operations():
    trace = program(HOST, GPU, modules=MODULES)
    total = int((trace.gpu_ops["end_ns"] - trace.gpu_ops["start_ns"]).sum())
    assert sum(row["gpu_own_ns"] for row in rows(trace, "modules")) == total


def test_ranges_are_scopes_but_steps_and_the_profilers_own_are_not():
    ranges = [("forward", 0, 100), ("nccl:all_reduce", 12, 35), ("block", 10, 40)]
    found = by_path(program(HOST[:1], GPU[:1], ranges=ranges, steps=[(0, 110)]))
    assert list(found) == [("forward", "forward"), ("forward/block", "forward")]
    assert found["forward", "forward"]["source"] == "range"


def test_a_path_is_summed_over_calls():
    modules = [("nn.Module: Net_0", 0, 10), ("nn.Module: Net_0", 20, 30)]
    gpu = [("a", 100, 105, {"launch": 5}), ("b", 110, 113, {"launch": 25})]
    (net,) = rows(program([("aten::mm", 1, 9), ("aten::mm", 21, 29)], gpu, modules=modules), "modules")
    assert (net["calls"], net["window_ns"], net["idle_ns"], net["host_ns"]) == (2, 8, 0, 20)


def test_kernels_have_path_operator_and_the_users_line():
    found = {row["kernel"]: row for row in rows(program(HOST, GPU, modules=MODULES), "operator_kernels")}
    assert [found[name]["path"] for name in ("gemm_a", "gemm_b", "add", "other")] == [
        "Net_0/Linear_0", "Net_0/Linear_1", "Net_0/Linear_1", None,
    ]  # fmt: skip
    assert (found["add"]["operator"], found["add"]["autograd"]) == ("aten::add", "backward")
    assert [found[name]["source"] for name in ("gemm_a", "add", "other")] == ["train.py(12): forward"] * 2 + [None]
    assert found["other"]["operator"] == "(no launch recorded)"


def test_compiled_kernels_name_their_operators():
    gpu = [("triton_poi_fused_add_gelu_0", 0, 10), ("triton_poi_fused_add_gelu_0", 10, 15), ("gemm", 20, 30)]
    (found,) = rows(program(gpu=gpu), "fusions")
    assert (found["operators"], found["fusion"], found["gpu_ops"], found["gpu_ns"]) == ("add, gelu", "pointwise", 2, 15)


def test_a_graph_launch_is_a_unit():
    def launched(time, *ops):
        return [(name, start, end, {"launch": time, "call": "cudaGraphLaunch"}) for name, start, end in ops]

    gpu = [
        *launched(10, ("a", 100, 110), ("b", 112, 120)),
        *launched(20, ("b", 200, 208), ("a", 208, 218)),
        *launched(30, ("c", 300, 301)),
        ("d", 400, 410, {"launch": 40}),
    ]
    trace = graph_trace(gpu)
    first, second = rows(trace, "graphs")
    assert (first["graph"], first["launches"], first["gpu_ops"], first["operations_per_launch"]) == (0, 2, 4, 2.0)
    assert (first["window_ns"], first["compute_ns"], first["idle_ns"], first["host_ns"]) == (38, 36, 2, 2)
    assert (second["graph"], second["launches"], second["gpu_ns"], second["is_opaque"]) == (1, 1, 1, False)


def graph_trace(gpu):
    """Operations of one launch share its correlation id."""
    trace = program(gpu=gpu)
    calls = trace.api_calls.drop_duplicates("start_ns", ignore_index=True)
    row = calls["start_ns"].searchsorted(trace.api_calls["start_ns"].to_numpy()[trace.gpu_ops["launch"]])
    return replace(trace, api_calls=calls, gpu_ops=trace.gpu_ops.assign(launch=row))


def test_paths_of_ranges_in_thousands_of_others_end_where_names_do():
    """Else 40,000 of them make gigabytes of text."""
    count, name = 2_000, "n" * 40
    trace = program(gpu=[("k", 0, 5)], ranges=[(f"{name}{place}", place, 10_000 - place) for place in range(count)])
    paths = Scopes.of(trace, OperatorTree.of(trace)).calls["path"].tolist()
    assert max(map(len, paths)) <= LONGEST_NAME
    assert paths[1] == f"{name}0/{name}1"
    assert paths[-1] == paths[-2]
