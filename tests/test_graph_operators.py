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


def capture(at=0, names=NAMES):
    """A module with three operators, each launching one kernel into the graph."""
    dims = [[8, 8], [8], [4, 4]]
    module = host(at, 100, name="nn.Module: Model_0", cat="python_function")
    operators = [operator(at + 10 * n + 1, 8, f"my::op_{n}", dims[n]) for n in range(3)]
    launches = [launch(at + 10 * n + 3, at + 100 + n, name) for n, name in enumerate(names)]
    return [module, *operators, *launches]


def replay(at, correlation, names=NAMES):
    kernels = [kernel(at + 50 + 10 * n, 5 + n, name=name, correlation=correlation) for n, name in enumerate(names)]
    return [host(at, 20, name="hipGraphLaunch", cat="cuda_runtime", correlation=correlation), *kernels]


def loaded(tmp_path, captured, events, folder="capture_traces"):
    eager = [launch(900, 1, "fill"), kernel(905, 1, name="fill", correlation=1)]
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


def test_their_order_may_differ_where_names_tell_which_is_which(tmp_path):
    traces = loaded(tmp_path, capture(), replay(2000, 7, ("norm", "gemm", "gemm")))
    assert gpu_ns(traces) == {"my::op_1": (1, 5_000), "my::op_0": (1, 6_000), "my::op_2": (1, 7_000)}


@pytest.mark.parametrize(
    ("captured", "replayed"),
    [
        (capture(), ("gemm", "norm")),
        (capture(), ("gemm", "norm", "other")),
        ([*capture(), host(500, 1, name="hipStreamEndCapture", cat="cuda_runtime"), *capture(600)], NAMES),
        (capture(names=(None, None, None)), NAMES),
    ],
    ids=["fewer kernels", "another kernel", "two captures alike", "launches that do not say what they launch"],
)
def test_what_does_not_fit_stays_without_operators(tmp_path, captured, replayed):
    assert set(gpu_ns(loaded(tmp_path, captured, replay(2000, 7, replayed)))) == {"(outside any operator)"}


def test_other_folders_are_not_asked(tmp_path):
    assert set(gpu_ns(loaded(tmp_path, capture(), replay(2000, 7), folder="other"))) == {"(outside any operator)"}


def test_a_trace_without_replays_stays_as_it_is(tmp_path):
    traces = loaded(tmp_path, capture(), [launch(10, 1), kernel(20, 5, correlation=1)])
    assert not traces.ranks[0].meta.notes
    assert traces.ranks[0].gpu_ops["captured_ns"].isna().all()


@pytest.mark.parametrize("folder", ["capture_traces", "."])
def test_a_capture_is_no_run_of_its_own_beside_the_replay(tmp_path, folder):
    loaded(tmp_path, capture(), replay(2000, 7), folder=folder)
    traces = ta.load(tmp_path)
    assert set(gpu_ns(traces)) == {"my::op_0", "my::op_1", "my::op_2"}
    assert not traces.notes
    assert not traces.skipped
