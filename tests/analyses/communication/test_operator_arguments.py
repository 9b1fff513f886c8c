"""Sizes and collectives from the operator that launched a call; which it is; what has none."""

import json

import pytest

from tests.analyses.communication.test_calls import launch, results
from tests.builders import host, kernel
from traceanalyzer import kinds

MULTIMEM = "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)"
ONE_SHOT = "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 2>(c10::BFloat16**)"
BARRIER = "c10d::symmetric_memory::barrier_kernel(unsigned int**, int)"
CUSTOM = "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)"


def operator(start, duration, name, dims, types, thread=1):
    return host(start, duration, name=name, thread=thread, **{"Input Dims": dims, "Input type": types})


def row(tmp_path, *events, name="calls"):
    (found,) = results(tmp_path, list(events), name)
    return found


@pytest.mark.parametrize(
    ("kernel_name", "operators", "expected"),
    [
        (MULTIMEM, [(0, 20, "symm_mem::multimem_all_reduce_", [[100], [], []], ["c10::BFloat16", "", ""])],
         ("all_reduce", 200, "BFloat16", None, "operator")),
        (ONE_SHOT, [(0, 20, "symm_mem::one_shot_all_reduce", [[100], [], []], ["c10::BFloat16", "", ""])],
         ("all_reduce", 200, "BFloat16", 2, "operator")),
        (CUSTOM, [(0, 30, "vllm::all_reduce", [[7, 10], []], ["c10::Half", ""]),
                  (1, 20, "_C_custom_ar::all_reduce", [[], [8, 10], [8, 10]], ["Scalar", "c10::Half", "c10::Half"])],
         ("all_reduce", 160, "Half", 8, "operator")),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", [(0, 20, "nccl:all_reduce", [[50]], ["float"])],
         ("all_reduce", 200, "float", None, "operator")),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)", [(0, 20, "c10d::allreduce_", [[[50], [10]], []], ["TensorList", ""])],
         ("all_reduce", 120, "BFloat16", None, "operator")),
        (MULTIMEM, [(0, 4, "symm_mem::multimem_all_reduce_", [[100]], ["c10::BFloat16"])],
         ("all_reduce", None, None, None, None)),
        (MULTIMEM, [(0, 20, "aten::mm", [[100]], ["c10::BFloat16"])], ("all_reduce", None, None, None, None)),
        (BARRIER, [(0, 20, "symm_mem::fused_all_gather_matmul", [[100]], ["c10::BFloat16"])],
         ("barrier", None, None, None, None)),
    ],
)  # fmt: skip
def test_a_kernel_without_arguments(tmp_path, kernel_name, operators, expected):
    found = row(
        tmp_path, *(operator(*one) for one in operators), launch(5, 1), kernel(30, 5, name=kernel_name, correlation=1)
    )
    assert (
        found["collective"],
        found["size_bytes"],
        found["dtype"],
        found["group_size"],
        found["arguments"],
    ) == expected


def test_the_operator_around_the_launch_speaks_where_an_inner_one_has_ended(tmp_path):
    outer = operator(0, 30, "vllm::all_reduce", [[100]], ["float"])
    ended = operator(1, 2, "symm_mem::get_buffer", [[3]], ["float"])
    found = row(tmp_path, outer, ended, launch(5, 1), kernel(40, 5, name=MULTIMEM, correlation=1))
    assert found["size_bytes"] == 400


def test_another_threads_operator_does_not_speak(tmp_path):
    other = operator(0, 30, "vllm::all_reduce", [[100]], ["float"], thread=2)
    assert row(tmp_path, other, launch(5, 1), kernel(40, 5, name=MULTIMEM, correlation=1))["size_bytes"] is None


@pytest.mark.parametrize(
    ("name", "collective"),
    [("symm_mem::fused_all_gather_matmul", "all_gather"), ("symm_mem::fused_matmul_reduce_scatter", "reduce_scatter"),
     ("aten::copy_", "peer_copy")],
)  # fmt: skip
def test_a_peer_copy_is_of_the_collective_that_launched_it_and_keeps_its_bytes(tmp_path, name, collective):
    around = operator(0, 20, name, [[1000]], ["float"])
    copy = kernel(30, 5, name="Memcpy PtoP (Device -> Device)", cat="gpu_memcpy", correlation=1, bytes=64)
    found = row(tmp_path, around, launch(5, 1), copy)
    assert (found["collective"], found["size_bytes"]) == (collective, 64)


@pytest.mark.parametrize(
    ("what", "dims", "types", "ranks", "size_bytes"),
    [
        ("all_reduce", [[2, 3]], ["float"], None, 24),
        ("all_gather", [[2, 3]], ["float"], 4, 96),
        ("all_gather", [[2, 3]], ["float"], None, None),
        ("all_gather", [[8, 3], [2, 3]], ["float", "float"], 4, 96),
        ("reduce_scatter", [[2, 3], [8, 3]], ["float", "float"], 4, 96),
        ("all_reduce", [[], [2, 3]], ["Scalar", "float"], None, 24),
        ("all_reduce", [[2, 3]], ["Quux"], None, None),
        ("all_reduce", [[[2], [3]]], ["TensorList"], None, None),
        ("all_reduce", [["x"]], ["float"], None, None),
        ("all_reduce", "no list", ["float"], None, None),
    ],
)  # fmt: skip
def test_bytes_of_an_operators_arguments(what, dims, types, ranks, size_bytes):
    assert kinds.operator_bytes(what, json.dumps(dims), json.dumps(types), ranks, None).size_bytes == size_bytes


@pytest.mark.parametrize(
    ("name", "is_of"),
    [("symm_mem::multimem_all_reduce_", True), ("_C_custom_ar::all_reduce", True), ("vllm::all_reduce", True),
     ("trtllm::allreduce", True), ("aiter::all_reduce_", True), ("nccl:all_reduce", True), ("c10d::allreduce_", True),
     ("aten::gather", False), ("aten::scatter_reduce", False), ("fsdp::all_gather_copy_in", False), ("FSDP::all_gather", False),
     ("_c10d_functional::wait_tensor", False), ("vllm::moe_forward", False), ("record_param_comms", False)],
)  # fmt: skip
def test_operators_that_communicate(name, is_of):
    assert kinds.is_comm_operator(name) is is_of
