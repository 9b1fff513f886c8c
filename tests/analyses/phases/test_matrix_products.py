"""Matrix products by phase, sizes and type, those beside communication told apart."""

from tests.programs import program
from traceanalyzer.analyses import run

BF16 = '["c10::BFloat16","c10::BFloat16"]'


def mm(start, shapes="[[8,4],[4,2]]"):
    return ("aten::mm", start, start + 10, {"shapes": shapes, "dtypes": BF16})


def found(trace):
    return run([trace], ["matrix_products"])["matrix_products"].rows()


def test_equal_products_add_up_and_those_beside_communication_are_told_apart():
    host = [mm(0), mm(20), mm(40), mm(60, "[[1,4],[4,2]]"), ("c10d::allreduce_", 80, 90, {})]
    ops = [("nvjet", 100, 110, {"launch": 5}), ("nvjet", 200, 230, {"launch": 25}), ("nvjet", 300, 312, {"launch": 45}),
           ("nvjet", 400, 405, {"launch": 65}), ("ncclDevKernel_AllReduce_Sum_f32", 210, 305, {"launch": 85, "kind": "comm"})]  # fmt: skip
    first, second = found(program(host, ops))
    assert (first["product"], first["dtype"], first["calls"], first["gpu_ns"]) == (
        "[8, 4] × [4, 2]", "c10::BFloat16", 3, 52,
    )  # fmt: skip
    # 20 of 30 ns beside it; of 12 only 5.
    assert (first["calls_beside_comm"], first["gpu_beside_comm_ns"]) == (1, 30)
    assert (first["mean_alone_ns"], first["mean_beside_comm_ns"]) == (11, 30)
    assert (second["product"], second["calls_beside_comm"], second["mean_beside_comm_ns"]) == (
        "[1, 4] × [4, 2]",
        0,
        None,
    )


def test_a_capture_without_shapes_has_none():
    assert found(program([("aten::mm", 0, 10, {})], [("nvjet", 20, 30, {"launch": 5})])) == []
