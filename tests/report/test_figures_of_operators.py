"""The roofline and the icicle hold what their tables say."""

import pandas as pd
import pytest

from tests.programs import program
from traceanalyzer.analyses import run
from traceanalyzer.report import assets
from traceanalyzer.report.page import charts
from traceanalyzer.report.page.charts import icicle, roofline

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


def test_roofline_of_an_unknown_gpu_has_no_roof():
    assert [series["name"] for series in roofline(result("efficiency", device_name="Abacus"))["data"]] == ["gemm"]


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


def test_icicle_shows_one_of_its_ranks_and_names_the_last_part_of_what_is_long():
    ranks = [program(HOST, GPU).renumbered(rank, "test") for rank in range(charts.ICICLE_MOST_RANKS + 2)]
    figure = icicle(run(ranks, ["operator_kernels"])["operator_kernels"])
    assert [trace["name"] for trace in figure["data"]] == [str(rank) for rank in range(charts.ICICLE_MOST_RANKS)]
    assert [trace["visible"] for trace in figure["data"]] == [True] + [False] * (charts.ICICLE_MOST_RANKS - 1)
    assert dict(zip(figure["data"][0]["labels"], figure["data"][0]["text"], strict=True))["aten::mm"] == "mm"
    assert figure["layout"]["meta"] == {"choose": "Rank"}


def test_icicle_opens_on_the_rank_that_is_asked_for():
    ranks = [program(HOST, GPU).renumbered(rank, "test") for rank in range(charts.ICICLE_MOST_RANKS + 2)]
    last = len(ranks) - 1
    figure = icicle(run(ranks, ["operator_kernels"])["operator_kernels"], first=last)
    assert [trace["name"] for trace in figure["data"] if trace["visible"]] == [str(last)]
    assert len(figure["data"]) == charts.ICICLE_MOST_RANKS


def test_communication_is_hatched_for_it_holds_waits():
    gpu = [*GPU, ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 6_000, 9_000, {"launch": 26, "kind": "comm"})]
    marker = icicle(run([program(HOST, gpu)], ["operator_kernels"])["operator_kernels"])["data"][0]["marker"]
    hatched = dict(zip(marker["colors"], marker["pattern"]["shape"], strict=True))
    assert hatched == {charts.BLOCK: "", charts.PALETTE_KINDS["compute"]: "", charts.PALETTE_KINDS["comm"]: "/"}


def test_blocks_have_the_colour_of_their_kind_and_parents_of_several_have_none():
    data = icicle(result("operator_kernels", modules=[("nn.Module: Net_0", 0, 15)]))["data"][0]
    colours = dict(zip(data["labels"], data["marker"]["colors"], strict=True))
    assert colours["nvjet 1×1 bf16"] == colours["aten::mm"] == charts.PALETTE_KINDS["compute"]
    assert colours["Net_0"] == colours["rank 0"] == charts.BLOCK
    mixed = pd.DataFrame(
        [
            ("m/forward", "aten::copy_", "backward", kernel, kind, 10)
            for kernel, kind in (("a", "copy"), ("b", "compute"))
        ],
        columns=["path", "operator", "autograd", "kernel", "kind", "gpu_ns"],
    )
    nodes = charts.tree(mixed, "rank 0", 20)
    assert {label: colour for _, label, _, colour in nodes.values()} == {
        "rank 0": charts.BLOCK, "backward": charts.BLOCK, "m": charts.BLOCK, "aten::copy_": charts.BLOCK,
        "a": charts.PALETTE_KINDS["copy"], "b": charts.PALETTE_KINDS["compute"],
    }, "no block called forward holds a backward operator"  # fmt: skip


def test_series_are_told_apart_from_kinds():
    style = assets.style()
    assert all(colour not in style for colour in charts.SERIES)
    assert all(colour in style for colour in charts.PALETTE_KINDS.values())


def test_nothing_to_draw():
    empty = run([program()], ["efficiency", "operator_kernels"])
    assert (roofline(empty["efficiency"]), icicle(empty["operator_kernels"])) == (None, None)
