"""Advice names the tools of the job's framework."""

import re
from dataclasses import fields

import pandas as pd
import pytest

from traceanalyzer.analyses.host.launches import Launches
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.analyses.phases.phases import Phases
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings import tools


@pytest.mark.parametrize(
    ("formats", "expected"),
    [(["kineto"], tools.TORCH), (["xplane", "xplane"], tools.XLA), (["nsys"], tools.TORCH), ([], tools.TORCH)],
)
def test_tools_are_those_of_the_traces(formats, expected):
    ranks = Ranks(pd.DataFrame({"rank": range(len(formats)), "format": formats}))
    assert tools.tools_of(ranks) == expected


def test_xla_is_told_by_its_kernels_too():
    ranks = pd.DataFrame({"rank": [0, 1], "format": "nsys", "versions": ["nsys 2025.3.2.0, compiler XLA"] * 2})
    assert tools.tools_of(Ranks(ranks)) is tools.XLA
    assert tools.tools_of(Ranks(ranks.assign(versions=[ranks["versions"][0], None]))) == tools.TORCH


def test_jax_is_not_told_to_use_torch():
    assert not [
        field.name for field in fields(tools.XLA) if re.search("torch|DDP", str(getattr(tools.XLA, field.name)))
    ]


def test_without_ranks_it_is_torch():
    assert tools.tools_of(None) == tools.TORCH


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
    used = tools.tools_of(ranks, Kernels(pd.DataFrame({"name": names, "calls": 1})))
    for advice in (used.launch_less, used.fuse_small, used.fuse_moving):
        assert ("fused=True" in advice) is is_by_parts
    assert used.launch_less.startswith("CUDA graphs" if compiles else "torch.compile or")
    assert ("already" in used.fusing, 'mode="reduce-overhead"' in used.fuse_small) == (compiles, compiles)


@pytest.mark.parametrize(("graph_operations", "replays"), [(50, True), (49, False), (None, False)])
def test_graphs_are_not_advised_to_who_replays_them(graph_operations, replays):
    ranks = Ranks(pd.DataFrame({"rank": [0], "format": "kineto"}))
    table = pd.DataFrame({"rank": [0], "operations": 100, "graph_operations": [graph_operations]})
    for kernels in (None, Kernels(pd.DataFrame({"name": [FUSED, COMPILED], "calls": 1}))):
        used = tools.tools_of(ranks, kernels, launches=Launches(table))
        assert used.launch_less.startswith("what is launched between its CUDA graphs") is replays
        assert used.fuse_small.startswith("Most is replayed by CUDA graphs already") is replays


ONE_BY_ONE = [
    f"void at::native::vectorized_elementwise_kernel<4, at::native::{name}(at::TensorIteratorBase&, c10::Scalar const&)>"
    for name in ("addcmul_cuda_kernel", "addcdiv_cuda_kernel")
]


@pytest.mark.parametrize(
    ("names", "calls", "is_single"),
    [
        (ONE_BY_ONE, 148, True),
        (ONE_BY_ONE, 4, False),  # a few parameters
        (ONE_BY_ONE[:1], 148, False),  # not what Adam ends with
        ([*ONE_BY_ONE, FUSED], 148, False),
    ],
)
def test_an_optimizer_that_takes_parameters_one_by_one_is_seen(names, calls, is_single):
    ranks = Ranks(pd.DataFrame({"rank": [0], "format": "kineto"}))
    used = tools.tools_of(ranks, Kernels(pd.DataFrame({"name": names, "calls": calls})))
    for advice in (used.launch_less, used.fuse_small):
        assert ("all parameters at once (fused=True, foreach=True)" in advice) is is_single
    assert ("optimizer" in used.fuse_moving) is is_single


def _iterations(by_graph, name):
    counts = {"operations": [100, 100], "graph_operations": [by_graph, by_graph]}
    return Iterations(pd.DataFrame({"rank": 0, "step": [0, 1], "name": name, "phase": "decode", **counts}))


def _engine(names=(), by_graph=0, name="decode"):
    ranks = Ranks(pd.DataFrame({"rank": [0], "format": "kineto"}))
    return tools.tools_of(ranks, Kernels(pd.DataFrame({"name": [*names], "calls": 1})), _iterations(by_graph, name))


def test_engines_that_serve_are_told_nothing_of_gradients():
    advice = [str(getattr(_engine(), field.name)) for field in fields(tools.Tools)]
    assert not [text for text in advice if re.search("gradient|bucket|no_sync|FSDP|DDP|async_op|microbatch", text)]


@pytest.mark.parametrize(
    ("names", "said", "left"),
    [
        (["ncclDevKernel_AllReduce_Sum_bf16_RING_LL(a)"], ["one-shot", "fused with the norm"], []),
        (["void vllm::cross_device_reduce_1stage<__half, 4>(vllm::Signal*)"], ["fused with the norm"], ["one-shot"]),
        (["void trtllm::allreduce_fusion_kernel_oneshot_lamport<1, __half, 4>(p)"], [], ["one-shot", "fused with"]),
    ],
)
def test_all_reduces_that_an_engine_uses_already_are_not_advised(names, said, left):
    join = _engine(names).join_small
    assert "fewer ranks in tensor parallelism" in join
    assert all(words in join for words in said)
    assert not any(words in join for words in left)


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
    advice = tools.tools_of(ranks, kernels, operators=operators).start_early
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
    of = tools.tools_of(ranks, None, operators=Operators(pd.DataFrame({"operator": operators})))
    for advice in (of.start_early, of.join_small + of.even_within):
        assert bool(re.search("gradient|bucket|no_sync", advice)) is is_trained


def test_graphs_are_not_advised_to_an_engine_that_replays_them():
    assert "CUDA graphs" in _engine(by_graph=20).launch_less
    assert "CUDA graphs" not in _engine(by_graph=90).launch_less
    assert "already" in _engine(by_graph=90).fuse_small
    assert _engine([COMPILED], 20, "step[DECODE bs=4]").fuse_small.startswith(
        "Replay small kernels by CUDA graphs (SGLang: leave --disable-cuda-graph off)"
    )


@pytest.mark.parametrize("of", [tools.TORCH, _engine()])
def test_experts_exchanges_are_hidden_as_all_to_alls_are(of):
    assert of.hide_comm["ep_dispatch"] == of.hide_comm["ep_combine"]
    for collective in ("ep_dispatch", "all_to_all"):
        assert "two halves" in of.hide_comm[collective] or "one half" in of.hide_comm[collective]


def test_all_to_alls_of_heads_and_samples_have_no_experts():
    assert "heads" in tools.TORCH.hide_comm["all_to_all"]
    assert "or keep more of them on one host" not in tools.TORCH.hide_comm["all_to_all"]


@pytest.mark.parametrize(
    ("operations", "compute_ns", "names", "is_single"),
    [
        (600, 1_500_000, [], True),
        (60, 150_000, [], False),  # lists of tensors, or few parameters
        (600, 60_000_000, [], False),  # large ones: launching them is not what takes the time
        (600, 1_500_000, [FUSED], False),
        (600, 1_500_000, [PARTS], False),
    ],
)
def test_one_whose_kernels_have_no_name_of_its_own_is_seen_by_their_number(operations, compute_ns, names, is_single):
    ranks = Ranks(pd.DataFrame({"rank": [0], "format": "kineto"}))
    kernels = Kernels(pd.DataFrame({"name": ["CUDAFunctor_add", *names], "calls": 600}))
    rows = {"phase": ["optimizer", "forward"], "operations": [operations, 900], "compute_ns": [compute_ns, 900]}
    phases = Phases(pd.DataFrame({"rank": 0, "step": [1, 1], **rows}))
    used = tools.tools_of(ranks, kernels, phases=phases)
    assert ("all parameters at once (fused=True, foreach=True)" in used.launch_less) is is_single


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
    used = tools.tools_of(
        Ranks(pd.DataFrame({"rank": [0], "format": "kineto"})),
        Kernels(pd.DataFrame({"name": kernels, "calls": 1})),
        operators=Operators(pd.DataFrame({"operator": operators})),
    )
    assert word in used.hide_any_comm
    assert ("async_op" in str(used)) is (word == "async_op")
    assert ("HOROVOD" in used.join_small) is ("HOROVOD" in used.start_early) is word.startswith("HOROVOD")
