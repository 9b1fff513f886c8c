import pytest

from traceanalyzer.meaning.names import MOST, short_name

NATIVE = "void at::native::"
ANONYMOUS = "at::native::(anonymous namespace)::"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{NATIVE}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
         "elementwise · add f32"),
        (f"{NATIVE}vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
         "elementwise · fill f32"),
        ((f"{NATIVE}vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
         "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int)"), "elementwise · mul f32"),
        ((f"{NATIVE}elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda("
         "at::TensorIteratorBase&)::{lambda()#3}::operator()() const>(int)"), "elementwise · copy strided"),
        ((f"{NATIVE}elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda("
         "at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(c10::BFloat16)#1}>(int)"),
         "elementwise · copy bf16 strided"),
        ((f"{NATIVE}vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::"
         "{lambda(float)#1}, std::array<char*, 2ul> >(int)"), "elementwise · copy f32 → bf16"),
        ((f"{NATIVE}unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>, 4, "
         "at::native::memory::LoadWithCast<2>, at::native::memory::StoreWithCast<1> >(int)"),
         "elementwise · add f32 casting"),
        (f"{NATIVE}vectorized_elementwise_kernel<8, at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&)>(i)",
         "elementwise · gelu_backward"),
        ((f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
         "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)> > >(x)"), "reduce · sum f32"),
        (f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >(x)",
         "reduce · mean f32"),
        ((f"void {ANONYMOUS}multi_tensor_apply_kernel<{ANONYMOUS}FusedOptimizerTensorListMetadata<4>, "
         f"{ANONYMOUS}FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>, float const*>(x)"),
         "multi_tensor_apply · FusedAdam"),
        ((f"void {ANONYMOUS}multi_tensor_apply_kernel<{ANONYMOUS}TensorListMetadata<1>, "
         f"{ANONYMOUS}BinaryOpScalarFunctor<float, 1, 1, 0>, std::multiplies<float>, float>(x)"),
         "multi_tensor_apply · mul"),
        (f"void {ANONYMOUS}cunn_SoftMaxForward<4, float, float, float, {ANONYMOUS}LogSoftMaxForwardEpilogue>(x)",
         "log_softmax forward"),
        ("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT", "nvjet 192×128 bf16"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNN", "nvjet 128×256 fp16"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(P)",
         "cutlass bf16_s16816gemm 256×128 tn"),
        ("ampere_sgemm_128x64_tn", "cublas sgemm 128×64"),
        ("## backward ##", "backward"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_stage3_execute_kernel__5x_cublas",
         "xmma gemm 128×128 f32 nn"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_kernel0_0",
         "cuDNN attention backward"),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)", "cuDNN · compute_dot_do_o_specialized"),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64> >(P)", "flash attention forward"),
        ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>(x)", "flash attention backward"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)",
         "memory-efficient attention forward"),
        ("triton_poi_fused_add_0", "triton pointwise · add"),
        ("triton_red_fused__to_copy_native_layer_norm_backward_view_8",
         "triton reduction · to_copy_layer_norm_backward_view"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "NCCL all-reduce f32"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "NCCL send/recv"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "NCCL all-reduce"),
        ("Memcpy HtoD (Pinned -> Device)", "copy HtoD (pinned → device)"),
        ("Memset (Device)", "memset"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256_MI16x16x1_SN", "Tensile gemm TN 32×32 bf16"),
        ("Cijk_Ailk_Bjlk_HHS_BH_MT128x64x32_MI32x32x8x1_SN", "Tensile gemm NT 128×64 fp16"),
        ("igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x64_wt32x32x8", "MIOpen conv weight grad 64×64 bf16"),
        ("_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47Gridwise",
         "ck · batched_gemm_xdlops_bwd_weight"),
        ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipeline", "ck_tile · Rmsnorm2dFwd"),
        ("_ZN5aiter37fmha_fwd_hd128_bf16_causalE", "aiter · fmha_fwd_hd128_bf16_causal"),
        ("void rocprim::ROCPRIM_400001_NS::detail::partition_kernel<(rocprim::detail::sel)1>(int)",
         "rocPRIM · partition"),
        ("__amd_rocclr_fillBufferAligned", "HIP fill"),
        ("void foo::bar::baz_kernel<int>(float*)", "baz"),
        ("my_kernel", "my_kernel"),
        ("", "(unnamed)"),
    ],
)  # fmt: skip
def test_short_name(name, expected):
    assert short_name(name) == expected


@pytest.mark.parametrize("algorithm", ["RING_LL", "TREE_LL128", "NVLS_SIMPLE", "COLLNET_CHAIN_SIMPLE"])
def test_the_compiled_variant_is_never_shown_as_what_ran(algorithm):
    shown = short_name(f"ncclDevKernel_AllReduce_Sum_bf16_{algorithm}(ncclDevKernelArgsStorage<4096ul>)")
    assert shown == "NCCL all-reduce bf16"


@pytest.mark.parametrize("name", ["x" * 10_000, "a\u202eb\u2066c\x00d\ne", "<" * 5_000, "operator()" * 500])
def test_hostile_names_become_short_and_printable(name):
    shown = short_name(name)
    assert 0 < len(shown) <= MOST
    assert shown.isprintable()
