"""What graphs replay has the operators and ranges that were open when their nodes were captured."""

import traceanalyzer as ta
from tests.nsys_builders import call, gid, kernel, nvtx, read_all, strings, write_sqlite

CAPTURED, INSTANCE = 1 << 32, 2 << 32


def node(start, number, original=None, thread=100):
    return {"start": start, "globalTid": gid(100, thread), "graphNodeId": number, "originalGraphNodeId": original}


def export():
    """Two kernels captured in two operators and a range; instantiated, replayed twice; an eager kernel after it."""
    return {
        "StringIds": strings(s1="gemm", s2="cudaLaunchKernel_v7000", s3="cudaGraphLaunch_v10000"),
        "CUDA_GRAPH_NODE_EVENTS": [
            node(110, CAPTURED), node(130, CAPTURED + 1),
            node(200, INSTANCE, CAPTURED), node(201, INSTANCE + 1, CAPTURED + 1),
        ],
        "NVTX_EVENTS": [
            nvtx(100, 190, "whole capture"), nvtx(105, 120, "layer_0"),
            nvtx(108, 118, "aten::mm, op_id = 1"), nvtx(128, 135, "aten::relu, op_id = 2"),
            nvtx(990, 1040, "step_0"), nvtx(1990, 2040, "step_1"),
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            call(1000, 1030, correlation=7, name=3), call(2000, 2030, correlation=8, name=3), call(3000, 3005, correlation=9),
        ],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            *(kernel(at + 100, at + 110, correlation=one, graphNodeId=INSTANCE) for one, at in ((7, 1000), (8, 2000))),
            *(kernel(at + 120, at + 150, correlation=one, graphNodeId=INSTANCE + 1) for one, at in ((7, 1000), (8, 2000))),
            kernel(3100, 3107, correlation=9),
        ],
    }  # fmt: skip


def test_replayed_kernels_belong_to_the_operators_around_their_capture(tmp_path):
    [trace] = read_all(write_sqlite(tmp_path / "run.sqlite", export()))
    traces = ta.load(tmp_path)
    found = {row["operator"]: row["gpu_own_ns"] for row in ta.operators(traces).rows() if row["gpu_own_ns"]}
    assert found == {"aten::mm": 20, "aten::relu": 60, "(outside any operator)": 7}
    assert trace.gpu_ops["captured_ns"].notna().tolist() == [True, True, True, True, False]


def test_ranges_inside_a_capture_come_with_each_replay_and_those_around_it_do_not(tmp_path):
    [trace] = read_all(write_sqlite(tmp_path / "run.sqlite", export()))
    names = trace.ranges["name"].value_counts().to_dict()
    assert names == {"layer_0": 3, "whole capture": 1, "step_0": 1, "step_1": 1}
    rows = {row["name"]: row["operations"] for row in ta.nvtx_projection(ta.load(tmp_path)).rows()}
    assert rows["layer_0"] == 2
    assert rows["step_0"] == rows["step_1"] == 2


def test_nodes_of_another_process_say_nothing(tmp_path):
    tables = export()
    for row in tables["CUDA_GRAPH_NODE_EVENTS"]:
        row["globalTid"] = gid(999, 1)
    [trace] = read_all(write_sqlite(tmp_path / "run.sqlite", tables))
    assert trace.gpu_ops["captured_ns"].isna().all()
