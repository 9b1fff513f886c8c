"""Advice names the tools of the job's framework."""

import re
from dataclasses import fields

import pandas as pd
import pytest

from traceanalyzer.analyses.host.launches import Launches
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases.micro_steps import Iterations
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings import vendor_terms


@pytest.mark.parametrize(
    ("formats", "expected"),
    [
        (["kineto"], vendor_terms.TORCH),
        (["xplane", "xplane"], vendor_terms.XLA),
        (["nsys"], vendor_terms.TORCH),
        ([], vendor_terms.TORCH),
    ],
)
def test_tools_are_those_of_the_traces(formats, expected):
    ranks = Ranks(pd.DataFrame({"rank": range(len(formats)), "format": formats}))
    assert vendor_terms.tools_of(ranks) == expected


def test_jax_is_not_told_to_use_torch():
    assert not [
        field.name
        for field in fields(vendor_terms.XLA)
        if re.search("torch|DDP", str(getattr(vendor_terms.XLA, field.name)))
    ]


_LISTS = "multi_tensor_apply_kernel<"
COMPILED, FUSED, APEX, PARTS, COPIES = (
    "triton_red_fused_native_layer_norm_0",
    f"{_LISTS}FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, ADAM_MODE::ADAMW>>",
    f"{_LISTS}TensorListMetadata<4>, AdamFunctor<float, float, int>>",
    f"{_LISTS}TensorListMetadata<3>, PointwiseOpScalarListFunctor<float, 3, 3, 0>, std::divides<float>>",
    f"{_LISTS}TensorListMetadata<2>, CopyFunctor<float, float, 2, 1, 1>>",
)


@pytest.mark.parametrize(
    ("names", "compiles", "is_by_parts"),
    [
        ([COPIES, "triton_kernel_of_mine"], False, False),
        ([COPIES, PARTS], False, True),
        ([PARTS, COMPILED], True, True),
        ([FUSED, PARTS, COMPILED], True, False),
        ([APEX, PARTS], False, False),
    ],
)
def test_what_a_job_uses_already_or_has_not_is_not_advised(names, compiles, is_by_parts):
    ranks = Ranks(pd.DataFrame({"rank": [0], "format": "kineto"}))
    used = vendor_terms.tools_of(ranks, Kernels(pd.DataFrame({"name": names, "calls": 1})))
    for advice in (used.launch_less, used.fuse_small, used.fuse_moving):
        assert ("fused=True" in advice) is is_by_parts
    assert used.launch_less.startswith("CUDA graphs" if compiles else "torch.compile or")
    assert ("already" in used.fusing, 'mode="reduce-overhead"' in used.fuse_small) == (compiles, compiles)


@pytest.mark.parametrize(("graph_operations", "replays"), [(50, True), (49, False), (None, False)])
def test_graphs_are_not_advised_to_who_replays_them(graph_operations, replays):
    ranks = Ranks(pd.DataFrame({"rank": [0], "format": "kineto"}))
    table = pd.DataFrame({"rank": [0], "operations": 100, "graph_operations": [graph_operations]})
    for kernels in (None, Kernels(pd.DataFrame({"name": [FUSED, COMPILED], "calls": 1}))):
        used = vendor_terms.tools_of(ranks, kernels, launches=Launches(table))
        assert used.launch_less.startswith("what is launched between its CUDA graphs") is replays
        assert used.fuse_small.startswith("Most is replayed by CUDA graphs already") is replays


def _iterations(by_graph, name):
    counts = {"operations": [100, 100], "graph_operations": [by_graph, by_graph]}
    return Iterations(pd.DataFrame({"rank": 0, "step": [0, 1], "name": name, "phase": "decode", **counts}))


def _engine(names=(), by_graph=0, name="decode"):
    ranks = Ranks(pd.DataFrame({"rank": [0], "format": "kineto"}))
    return vendor_terms.tools_of(
        ranks, Kernels(pd.DataFrame({"name": [*names], "calls": 1})), _iterations(by_graph, name)
    )


def test_engines_that_serve_are_told_nothing_of_gradients():
    advice = [str(getattr(_engine(), field.name)) for field in fields(vendor_terms.Tools)]
    assert not [text for text in advice if re.search("gradient|bucket|no_sync|FSDP|DDP|async_op|microbatch", text)]


@pytest.mark.parametrize(
    ("name", "own", "others"),
    [
        ("execute_context_0(0)_generation_32(32)", ["--enforce-eager", "--async-sch", "--enable-dbo"], ["SGLang", "TensorRT"]),
        ("step[DECODE bs=32]", ["--disable-cuda-graph", "--disable-overlap", "--enable-two-batch"], ["vLLM", "TensorRT"]),
        ("[Executor] _forward_step 5: 0 ctx reqs, 32 gen reqs", ["cuda_graph_config"], ["vLLM", "SGLang"]),
        ("decode", ["vLLM", "SGLang", "TensorRT-LLM"], []),
    ],
    ids=["vLLM", "SGLang", "TensorRT-LLM", "another"],
)  # fmt: skip
def test_an_engine_is_advised_its_own_switches(name, own, others):
    told = _engine(name=name)
    said = f"{told.launch_less} {told.hide_comm['all_to_all']}"
    assert all(words in said for words in own)
    assert not any(words in said for words in others)
    # These switches are of exchanges with experts: they hide no all-reduce of tensor parallelism.
    assert not any(
        words in f"{told.hide_any_comm}{told.start_early}" for words in ("--enable-dbo", "--enable-two-batch")
    )


@pytest.mark.parametrize(
    ("operator", "is_served"), [("aten::mm", True), ("autograd::engine::evaluate_function: MmBackward0", False)]
)
def test_kernels_of_an_engine_tell_it_where_iterations_have_no_names(operator, is_served):
    kernels = Kernels(pd.DataFrame({"name": ["void vllm::cross_device_reduce_1stage<__half, 4>(p)"], "calls": 1}))
    operators = Operators(pd.DataFrame({"operator": [operator]}))
    ranks = Ranks(pd.DataFrame({"rank": [0], "format": "kineto"}))
    advice = vendor_terms.tools_of(ranks, kernels, operators=operators).start_early
    assert ("tensor parallelism" in advice) is is_served
    assert ("gradients" in advice) is not is_served


@pytest.mark.parametrize(
    ("operators", "is_trained"),
    [
        (["aten::mm", "record_param_comms"], False),
        (["aten::mm", "record_param_comms", "autograd::engine::evaluate_function: MmBackward0"], True),
        (["aten::mm", "record_param_comms", "aten::_fused_adamw_"], True),
        (["record_param_comms"], True),  # what else there is was not recorded
        ([], True),
    ],
)
def test_who_trains_nothing_is_told_nothing_of_gradients(operators, is_trained):
    ranks = Ranks(pd.DataFrame({"rank": [0], "format": "kineto"}))
    of = vendor_terms.tools_of(ranks, None, operators=Operators(pd.DataFrame({"operator": operators})))
    for advice in (of.start_early, of.join_small + of.even_within):
        assert bool(re.search("gradient|bucket|no_sync", advice)) is is_trained


_ALL_REDUCE, _OWN = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
    "void horovod::common::batched_memcpy_k<4>()",
)


@pytest.mark.parametrize(
    ("kernels", "operators", "word"),
    [
        ([_ALL_REDUCE, _OWN], ["aten::mm"], "HOROVOD_FUSION_THRESHOLD"),
        ([_ALL_REDUCE], ["aten::mm", "HorovodAllreduce"], "HOROVOD_FUSION_THRESHOLD"),
        ([_ALL_REDUCE], ["aten::mm", "MmBackward0", "record_param_comms"], "async_op"),
        ([_ALL_REDUCE], ["aten::mm"], "Start them before"),
        ([_ALL_REDUCE], [], "async_op"),
    ],
    ids=["its kernels", "its functions", "torch's", "of nobody", "not recorded"],
)
def test_collectives_are_hidden_by_the_library_that_makes_them(kernels, operators, word):
    used = vendor_terms.tools_of(
        Ranks(pd.DataFrame({"rank": [0], "format": "kineto"})),
        Kernels(pd.DataFrame({"name": kernels, "calls": 1})),
        operators=Operators(pd.DataFrame({"operator": operators})),
    )
    assert word in used.hide_any_comm
    assert ("async_op" in str(used)) is (word == "async_op")
    assert ("HOROVOD" in used.join_small) is ("HOROVOD" in used.start_early) is word.startswith("HOROVOD")
