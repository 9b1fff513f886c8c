"""Replayed CUDA graphs take operators, modules and shapes from a trace of their capture beside them."""

import pytest

import traceanalyzer as ta
from tests.builders import document, host, kernel, write

NAMES = ("gemm", "norm", "gemm")


def launch(start, correlation, name=None, call="hipModuleLaunchKernel"):
    said = {} if name is None else {"kernel": name}
    return host(start, 1, name=call, cat="cuda_runtime", correlation=correlation, **said)


def operator(start, duration, name, dims):
    return host(start, duration, name=name, **{"Input Dims": [dims], "Input type": ["float"]})


END = host(500, 1, name="hipStreamEndCapture", cat="cuda_runtime")

DIMS = ([8, 8], [8], [4, 4])


def capture(at=0, names=NAMES, dims=DIMS, prefix="my"):
    """A module with three operators, each launching one kernel into the graph."""
    module = host(at, 100, name="nn.Module: Model_0", cat="python_function")
    operators = [operator(at + 10 * n + 1, 8, f"{prefix}::op_{n}", dims[n]) for n in range(3)]
    launches = [launch(at + 10 * n + 3, at + 100 + n, name) for n, name in enumerate(names)]
    return [module, *operators, *launches]


def replay(at, correlation, names=NAMES):
    kernels = [kernel(at + 50 + 10 * n, 5 + n, name=name, correlation=correlation) for n, name in enumerate(names)]
    return [host(at, 20, name="hipGraphLaunch", cat="cuda_runtime", correlation=correlation), *kernels]


def loaded(tmp_path, captured, events, folder="capture_traces", eager_name="fill"):
    eager = [launch(900, 1, eager_name), kernel(905, 1, name="fill", correlation=1)]
    write(tmp_path / folder / "graph_capture_rank_0.json", document([*eager, *captured], rank=0, world_size=1))
    write(tmp_path / "replay.json", document(events, rank=0, world_size=1, base_ns=1_700_000_000_000_000_000))
    return ta.load([tmp_path / "replay.json"])


def gpu_ns(traces):
    rows = ta.operators(traces).rows()
    return {row["operator"]: (row["calls"], row["gpu_own_ns"]) for row in rows if row["gpu_own_ns"]}


def test_each_replay_has_the_operators_that_captured_it(tmp_path):
    traces = loaded(tmp_path, capture(), [*replay(2000, 7), *replay(3000, 8)])
    assert gpu_ns(traces) == {"my::op_0": (2, 10_000), "my::op_1": (2, 12_000), "my::op_2": (2, 14_000)}
    shapes = {row["operator"]: row["shapes"] for row in ta.operator_shapes(traces).rows() if row["gpu_own_ns"]}
    assert shapes == {"my::op_0": "[[8, 8]]", "my::op_1": "[[8]]", "my::op_2": "[[4, 4]]"}
    assert [row["path"] for row in ta.modules(traces).rows()] == ["Model_0"]
    assert any("6 replayed operations" in note for note in traces.ranks[0].meta.notes)


def test_a_replay_is_one_launch_of_the_operator_around_it_and_no_operator_is_short_of_launches(tmp_path):
    traces = loaded(tmp_path, capture(), [operator(1990, 40, "my::replay", [1]), *replay(2000, 7)])
    keys = ("operator", "launches", "gpu_ops", "launch_ns")
    rows = [tuple(row[key] for key in keys) for row in ta.operator_launches(traces).rows()]
    assert rows == [("my::replay", 1, 3, 20_000)]


@pytest.mark.parametrize(
    ("captured", "replayed"),
    [
        (capture(), ("gemm", "norm")),
        (capture(), ("gemm", "norm", "other")),
        ([*capture(), END, *capture(600, prefix="other")], NAMES),
        (capture(names=(None, None, None)), NAMES),
    ],
    ids=["fewer kernels", "another kernel", "two captures by other operators", "nothing says what was captured"],
)
def test_what_does_not_fit_stays_without_operators(tmp_path, captured, replayed):
    assert set(gpu_ns(loaded(tmp_path, captured, replay(2000, 7, replayed)))) == {"(outside any operator)"}


@pytest.mark.parametrize("folder", ["capture_traces", "."])
def test_a_capture_is_no_run_of_its_own_beside_the_replay(tmp_path, folder):
    loaded(tmp_path, capture(), replay(2000, 7), folder=folder)
    traces = ta.load(tmp_path)
    assert set(gpu_ns(traces)) == {"my::op_0", "my::op_1", "my::op_2"}
    assert not traces.notes
    assert not traces.skipped


def shapes_of(traces):
    return [row["shapes"] for row in ta.operator_shapes(traces).rows() if row["gpu_own_ns"]]


@pytest.mark.parametrize(
    ("dims", "shapes"),
    [(DIMS, ["[[4, 4]]", "[[8]]", "[[8, 8]]"]), (([16, 8], [16], [8, 4]), [None, None, None])],
    ids=["the same", "of another batch size"],
)
def test_of_several_captures_alike_the_operators_are_taken_and_shapes_where_they_agree(tmp_path, dims, shapes):
    traces = loaded(tmp_path, [*capture(), END, *capture(600, dims=dims)], replay(2000, 7))
    assert set(gpu_ns(traces)) == {"my::op_0", "my::op_1", "my::op_2"}
    assert sorted(shapes_of(traces), key=str) == sorted(shapes, key=str)


def cuda_capture(at=0, calls=("cudaLaunchKernel", "cudaMemcpyAsync", "cuLaunchKernelEx")):
    """As CUDA's calls are traced: they name no kernel."""
    begin = host(at, 1, name="cudaStreamBeginCapture", cat="cuda_runtime")
    operators = [operator(at + 10 * n + 2, 8, f"my::op_{n}", [n + 1]) for n in range(3)]
    launches = [launch(at + 10 * n + 4, at + 100 + n, call=call) for n, call in enumerate(calls)]
    return [begin, *operators, *launches, host(at + 90, 1, name="cudaStreamEndCapture", cat="cuda_runtime")]


def cuda_replay(at, correlation):
    """The nodes ran in another order than they were captured in; a copy among them."""
    nodes = [kernel(at + 50, 5, name="last", correlation=correlation, **{"graph node id": (2 << 32) + 2})]
    nodes.append(kernel(at + 60, 6, name="first", correlation=correlation, **{"graph node id": 2 << 32}))
    copy = {"graph node id": (2 << 32) + 1}
    nodes.append(kernel(at + 70, 7, name="Memcpy DtoD", cat="gpu_memcpy", correlation=correlation, **copy))
    return [host(at, 20, name="cudaGraphLaunch", cat="cuda_runtime", correlation=correlation), *nodes]


def test_cuda_captures_are_matched_by_the_order_of_nodes(tmp_path):
    traces = loaded(tmp_path, cuda_capture(), cuda_replay(2000, 7), eager_name=None)
    assert gpu_ns(traces) == {"my::op_0": (1, 6_000), "my::op_1": (1, 7_000), "my::op_2": (1, 5_000)}


def annotated(at, correlation, names):
    """As PyTorch's annotated traces have it: a kernel's arguments name the node's scope; arguments are texts."""
    kernels = [kernel(at + 50 + 10 * n, 5 + n, name="k", correlation=correlation) for n in range(len(names))]
    for number, said in enumerate(names, 1):
        kernels[number - 1]["args"] |= {"graph node id": (1 << 32) + number, **said}
    return [host(at, 20, name="cudaGraphLaunch", cat="cuda_runtime", correlation=correlation), *kernels]


def test_names_of_nodes_are_operators_of_each_replay(tmp_path):
    names = ({"name": "qkv"}, {}, {"name": "mlp", "Group size": "4"}, {"module_fqn": "layers.0"}, {"name": "qkv"})
    content = document([*annotated(1000, 7, names), *annotated(2000, 8, names)], rank=0, world_size=1)
    traces = ta.load([write(tmp_path / "rank0.json", content)])
    sums = {name: gpu for name, (_, gpu) in gpu_ns(traces).items()}
    assert sums == {"(outside any operator)": 12_000, "qkv": 28_000, "mlp": 14_000, "layers.0": 16_000}


@pytest.mark.parametrize("place", ["kernel_annotations_rank0_1.json", "../kernel_annotations_rank0.json"])
def test_names_of_nodes_may_lie_beside(tmp_path, place):
    folder = tmp_path / "step_1"
    write(folder / "rank0.json", document(annotated(1000, 7, ({}, {})), rank=0, world_size=1))
    first, second = (str((1 << 32) + n) for n in (1, 2))
    write(folder / place, {first: [{"name": "outer"}, {"str": "inner"}], second: ["plain"], "7": [{}]})
    assert gpu_ns(ta.load([folder / "rank0.json"])) == {"inner": (1, 5_000), "plain": (1, 6_000)}
