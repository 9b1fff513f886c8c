"""Names → kinds, collectives, copies and dtype sizes."""

import pytest

from traceanalyzer import kinds
from traceanalyzer.errors import UsageError
from traceanalyzer.kinds import KindRules


@pytest.mark.parametrize(
    ("name", "activity", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "kernel", "comm"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t", "kernel", "comm"),
        ("void vllm::cross_device_reduce_1stage<__half, 2>", "kernel", "comm"),
        ("multimem_all_reduce_kernel", "kernel", "comm"),
        ("nvshmemi_transfer_rma", "kernel", "comm"),
        ("deep_ep::intranode::dispatch", "kernel", "comm"),
        ("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopA_NNT", "kernel", "compute"),
        ("void at::native::reduce_kernel<512, 1>", "kernel", "compute"),
        ("Memcpy HtoD (Pinned -> Device)", "memcpy", "copy"),
        ("Memcpy DtoD (Device -> Device)", "memcpy", "copy"),
        ("Memcpy PtoP (Device -> Device)", "memcpy", "comm"),
        ("Memset (Device)", "memset", "copy"),
    ],
)
def test_kind_of_a_name(name, activity, kind):
    assert KindRules().kind(name, activity) == kind


def test_users_rules_come_first():
    rules = KindRules.parse(("comm=my_ring", "compute=ncclDevKernel_Fake"))
    assert rules.kind("my_ring_exchange", "kernel") == "comm"
    assert rules.kind("ncclDevKernel_Fake", "kernel") == "compute"
    assert rules.kind("ncclDevKernel_AllReduce", "kernel") == "comm"


@pytest.mark.parametrize("rule", ["comm", "network=x", "comm=", "comm=("])
def test_bad_rules_are_refused(rule):
    with pytest.raises(UsageError, match="--kernel-kind"):
        KindRules.parse((rule,))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("allreduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("broadcast", "broadcast"),
        ("reduce", "reduce"),
        ("send", "send"),
        ("recv", "recv"),
        ("wait", None),
        (None, None),
        ("ncclAllReduce", "all_reduce"),
        ("ncclGroupStart", None),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
    ],
)
def test_collective_of_a_name(name, expected):
    assert kinds.collective(name) == expected


@pytest.mark.parametrize(
    ("dtype", "size"), [("Float", 4), ("BFloat16", 2), ("c10::BFloat16", 2), ("Long", 8), ("Byte", 1), ("Quux", None)]
)
def test_bytes_of_a_dtype(dtype, size):
    assert kinds.dtype_bytes(dtype) == size


def test_copy_direction_and_memories():
    copy = kinds.copy_kind("Memcpy HtoD (Pageable -> Device)")
    assert (copy.direction, copy.source_memory, copy.target_memory) == ("HtoD", "pageable", "device")
    assert kinds.copy_kind("Memcpy").direction is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Memcpy M2D (MEMORY(Unknown) -> DEVICE)", ("HtoD", "pageable", "device")),
        ("Memcpy D2H (DEVICE -> HOST)", ("DtoH", "device", "pinned")),
        ("Memcpy D2D (DEVICE -> DEVICE)", ("DtoD", "device", "device")),
        ("Memcpy D2S (DEVICE -> SHARED)", ("D2S", "device", "shared")),
    ],
)
def test_intels_copies_are_read_as_others(name, expected):
    copy = kinds.copy_kind(name)
    assert (copy.direction, copy.source_memory, copy.target_memory) == expected
