"""Every known communication kernel by its name, as sources and as traces write it; and names that only sound alike."""

import csv
from pathlib import Path

import pytest

from tests.samples import OF_EACH_KIND, sample
from traceanalyzer import kinds
from traceanalyzer.kinds import KindRules

HERE = Path(__file__).parent


def _rows():
    with (HERE / "comm_kernels.tsv").open(encoding="utf-8") as text:
        return list(csv.DictReader(text, delimiter="\t"))


def _role(name):
    known = kinds.comm_kernel(name)
    return "compute" if known is None else "fused" if known.is_fused else "comm"


def _mangled(path):
    parts = ["_GLOBAL__N_1" if part == "(anonymous namespace)" else part for part in path.split("::")]
    inside = "".join(f"{len(part)}{part}" for part in parts)
    return f"_ZN{inside}ILi8EEEvPvi" if len(parts) > 1 else f"_Z{inside}ILi8EEvPvi"


@pytest.mark.parametrize(
    "written",
    [
        "{}",
        "void {}<8, (int)768, c10::BFloat16, at::native::(anonymous namespace)::Op<float, (4 > 2)> >(void*, int)",
        "{}(unsigned int**, int) [clone .kd]",
        "mangled",
    ],
)
def test_every_kernel_of_the_list_in_every_spelling(written):
    rows = _rows()
    assert len(rows) > 400
    assert {row["kernel"]: wrong for row in rows if (wrong := _wrong(row, written))} == {}


def _wrong(row, written):
    """What is not told of the kernel as the list has it: got and wanted by what it is of."""
    name = _mangled(row["kernel"]) if written == "mangled" else written.format(row["kernel"])
    told = {
        "role": (_role(name), row["kind"]),
        "kind": (KindRules().kind(name, "kernel"), "comm" if row["kind"] == "comm" else "compute"),
        "speaks": (kinds.speaks_of_communication(name), False),
    }
    if row["collective"]:
        told["collective"] = kinds.kernel_collective(name), row["collective"]
    return {what: pair for what, pair in told.items() if pair[0] != pair[1]}


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "all_reduce"),
        ("void <unnamed>::one_shot_all_reduce_kernel<c10::BFloat16, (int)16, (int)2>(c10::BFloat16 **)", "all_reduce"),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 2, true>(float**)", "reduce_scatter"),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 2, false>(float**)", "all_reduce"),
        ("void <unnamed>::two_shot_all_reduce_kernel<c10::BFloat16, (int)16, (int)2, (bool)1>(T **)", "reduce_scatter"),
        ("c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)", "barrier"),
        ("void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, void*)", "ep_dispatch"),
        ("void dpsk::ep::intranode::combine<nv_bfloat16, 8, 768>(nv_bfloat16*)", "ep_combine"),
        ("void dpsk::ep::internode::notify_dispatch<false, 2>(int const*)", "ep_notify"),
        ("void (anonymous namespace)::all_reduce_one_shot_push_kernel<__nv_bfloat16, 8u, true>(Params)", "all_reduce"),
        ("void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<(A)1, __nv_bfloat16, 8, true>(P)",
         "all_reduce"),
        ("void kittens::py::global_kernel<cfg, all_reduce::globals, &all_reduce::kernel>(all_reduce::globals)", "all_reduce"),
        ("void kittens::py::global_kernel_unclustered<all_to_all::config, all_to_all::globals, &all_to_all::kernel<0, 1> >(G)", "all_to_all"),
        ("void kittens::py::global_kernel_clustered<c, all_to_all_barrier::globals, &all_to_all_barrier::kernel>(G)", "barrier"),
        ("void meta::comms::ddaAllReduceFlatIpc<float, 8, false>(float* const*, float*, unsigned long)", "all_reduce"),
        ("void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8<8, __nv_fp8_e4m3>(int, int)", "reduce_scatter"),
        ("consumer_kernel(void*, int)", "barrier"),
        ("mscclKernel_Sum_half_Simple_false(ncclDevComm*)", None),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>) [clone .kd]", None),
        ("ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs const*)", "all_gather"),
        ("ncclSymkDevKernel_ReduceScatter_RailA2A_LsaLD_sum_bf16(ncclSymkDevWorkArgs const*)", "reduce_scatter"),
        ("allreduce_two_shot_multimem_intra_node_kernel", "all_reduce"),
        ("nvshmemi_transfer_rma", "rma"),
    ],
)  # fmt: skip
def test_communication_as_traces_write_it(name, collective):
    assert _role(name) == "comm"
    assert kinds.kernel_collective(name) == collective


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("c10d::symmetric_memory::barrier_kernel(unsigned int**)", "only"),
        ("c10d::symmetric_memory::wait_signal_kernel(unsigned int**)", "only"),
        ("void deep_ep::intranode::notify_dispatch<8>(int const*)", "only"),
        ("void deep_ep::intranode::cached_notify_combine<8>(void**)", "only"),
        ("void deep_ep::intranode::barrier<8>(int**, int)", "only"),
        ("void deep_ep::intranode::dispatch<8, 768>(int4*)", "peers"),
        ("ncclKernelPut(int*)", "no"),
        ("ncclKernelWaitSignal(int*)", "only"),
        ("void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)", "peers"),
    ],
)
def test_what_a_kernels_duration_holds(name, waits):
    assert kinds.comm_kernel(name).waits == waits


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)", 8),
        ("void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 2>(c10::BFloat16**)", 2),
        ("void <unnamed>::one_shot_all_reduce_kernel<c10::BFloat16, (int)16, (int)4>(c10::BFloat16 **)", 4),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", None),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", None),
    ],
)
def test_group_size_from_a_template_argument(name, size):
    assert kinds.comm_kernel(name).group_size == size


@pytest.mark.parametrize(
    "name",
    [
        "void deep_gemm::sm100_fp8_mega_moe_impl<128u, 128u>(float*)",
        "kernel_fused_gemm_allreduce",
        "mega_kernel_moe_fwd",
        "persistent_gemm_all_reduce",
        "void kittens::py::global_kernel<cfg, gemm_rs::globals, &gemm_rs::kernel>(gemm_rs::globals)",
        "void kittens::py::global_kernel_clustered<ag_gemm::config, ag_gemm::globals, &ag_gemm::kernel>(ag_gemm::globals)",
        "void kittens::py::global_kernel_unclustered<c, moe_dispatch_matmul::globals, &moe_dispatch_matmul::kernel>(G)",
    ],
)
def test_kernels_that_compute_and_communicate(name):
    assert kinds.is_fused(name)
    assert KindRules().kind(name, "kernel") == "compute"


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)",
        "void cub::DeviceReduceSingleTileKernel<cub::Policy600, float*>(float*)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 8, (lambda)>(int)",
        "void at::native::index_elementwise_kernel<128, 4, at::native::index_put_kernel_impl<float>>(long)",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*)",
        "void vllm::moe::topkGatingSoftmax<8, 64, 4, 16>(float const*)",
        "void cutlass::device_kernel<cutlass::gemm::GemmUniversal<ClusterBarrier, dispatch::TmaWarpSpecialized>>(P)",
        "void flash::flash_fwd_splitkv_combine_kernel<Traits, 4, 5, true>(flash::Flash_fwd_params)",
        "void moe::dev::finalize::finalizeKernelVecLoad<P>(P)",
        "triton_red_fused_all_reduce_view_0",
        "at::cuda::(anonymous namespace)::spin_kernel(long)",
        "void at::native::barrier_free_kernel<all_reduce::Functor>(int)",
        "dispatch",
        "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
        "Cijk_Alik_Bljk_BBS_BH_MT32x32x64_MI16x16x16x1_SN_1LDSB0",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28GridwiseGemmE",
    ],
)  # fmt: skip
def test_what_only_sounds_alike_is_compute(name):
    assert _role(name) == "compute"
    assert not kinds.speaks_of_communication(name)


def test_kernels_of_real_captures_that_do_not_communicate():
    names = (HERE / "compute_kernels.txt").read_text(encoding="utf-8").splitlines()
    assert len(names) > 200
    assert not [name for name in names if _role(name) != "compute" or kinds.speaks_of_communication(name)]


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_only_nccl_communicates_in_the_samples_and_no_other_name_speaks_of_it(name):
    names = {text for trace in sample(name).ranks for text in trace.gpu_ops["name"].astype(str).unique()}
    assert all("nccl" in text for text in names if _role(text) == "comm")
    assert not [text for text in names if kinds.speaks_of_communication(text)]


def test_the_documentation_names_every_library():
    text = (HERE.parents[1] / "docs" / "reference" / "communication_kernels.md").read_text(encoding="utf-8")
    assert not [name for name in kinds.libraries() if f"| {name} |" not in text]
