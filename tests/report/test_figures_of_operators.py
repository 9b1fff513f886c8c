"""The roofline and the icicle hold what their tables say."""

import pytest

from tests.programs import program
from traceanalyzer.analyses import run
from traceanalyzer.report.charts import icicle, roofline

MM = {"shapes": "[[1000,1000],[1000,1000]]", "dtypes": '["c10::BFloat16","c10::BFloat16"]'}
HOST = [("aten::mm", 0, 10, MM), ("aten::add", 20, 30)]
GPU = [("nvjet_sm90_tst_1x1", 100, 4_100, {"launch": 5}), ("add", 5_000, 5_500, {"launch": 25})]


def result(name, **more):
    return run([program(HOST, GPU, **more)], [name])[name]


def test_roofline_has_a_roof_and_a_point():
    roof, gemm = roofline(result("efficiency"))["data"]
    assert roof["name"] == "peak bf16: 989 TFLOP/s, 4,800 GB/s"
    assert max(roof["y"]) == 989.4
    assert roof["y"][0] == pytest.approx(roof["x"][0] * 4.8)
    assert (gemm["name"], gemm["y"], gemm["x"]) == ("gemm", [500.0], [pytest.approx(1000 / 3)])


def test_icicle_is_a_tree_whose_blocks_hold_their_parts():
    modules = [("nn.Module: Net_0", 0, 15)]
    data = icicle(result("operator_kernels", modules=modules))["data"][0]
    values = dict(zip(data["ids"], data["values"], strict=True))
    parents = dict(zip(data["ids"], data["parents"], strict=True))
    assert data["labels"][:4] == ["rank 0", "Net_0", "aten::mm", "nvjet 1×1 bf16"]
    assert values["0"] == pytest.approx(0.0045)
    for node, value in values.items():
        inside = [values[child] for child, parent in parents.items() if parent == node]
        assert not inside or sum(inside) == pytest.approx(value)
