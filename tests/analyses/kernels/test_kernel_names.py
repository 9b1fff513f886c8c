"""Categories, tensor cores and fused operators from names that real traces hold."""

import pytest

from traceanalyzer.analyses.kernels.kernel_names import category, fusion, uses_tensor_cores

SGEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(cutlass_80_simt_sgemm_256x128_8x4_nn_align1::Params)"
FFMA = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x128x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas"
TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x8_kernel"
NVJET = "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT"
COPY = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)"
)
LAYER_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float)"
SDPA = "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0"
ADAM = "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"
CONV = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32"
TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256_MI16x16x1_SN_LDSB1_AFC1_AFEM1"
IGEMM = "igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x64_wt32x32x8_ws1x1_wr1x1_ta1x4x1x4_1x16x1x16"
CK_CONV = "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm_bk0mk1_bk0nk1"


@pytest.mark.parametrize(
    ("kernel", "kind", "operator", "expected"),
    [
        (NVJET, "compute", "aten::mm", "gemm"),
        (TENSILE, "compute", None, "gemm"),
        (IGEMM, "compute", None, "convolution"),
        (CK_CONV, "compute", None, "convolution"),
        ("bwd_kernel_fuse", "compute", None, "attention"),
        ("_ZN5aiter37fmha_fwd_hd128_bf16_causalE", "compute", None, "attention"),
        ("void aiter::pa_fwd_bf16_gqa8<int>(int)", "compute", None, "attention"),
        ("SubTensorOpWithScalar1d", "compute", None, "element-wise"),
        (NVJET, "compute", None, "gemm"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int>", "compute", "aten::addmm", "gemm"),
        (SDPA, "compute", None, "attention"),
        (COPY, "compute", "aten::_cudnn_attention_backward", "attention"),
        ("fmha_cutlassB_f32_aligned_64x64_k64_dropout_sm80(Params)", "compute", None, "attention"),
        (CONV, "compute", None, "convolution"),
        (COPY, "compute", "aten::copy_", "element-wise"),
        (COPY, "compute", "aten::convert_element_type", "element-wise"),
        (LAYER_NORM, "compute", "aten::native_layer_norm", "norm"),
        (LAYER_NORM, "compute", None, "norm"),
        ("cunn_SoftMaxForward<4, float>", "compute", None, "softmax"),
        (ADAM, "compute", "aten::_fused_adamw_", "optimizer"),
        ("multi_tensor_apply_kernel<BinaryOpScalarFunctor>", "compute", "aten::_foreach_add_", "optimizer"),
        ("multi_tensor_apply_kernel<Copy<float>>", "compute", "aten::_foreach_copy_", "element-wise"),
        ("void at::native::vectorized_gather_kernel<16, long>(char*)", "compute", "aten::embedding", "embedding"),
        ("void at::native::reduce_kernel<512, 1>(sum)", "compute", "aten::sum", "reduction"),
        ("triton_poi_fused_gelu_view_8", "compute", "triton_poi_fused_gelu_view_8", "element-wise"),
        ("triton_per_fused_add_native_layer_norm_view_9", "compute", "triton_per_fused_add_9", "norm"),
        ("triton_red_fused_sum_3", "compute", "triton_red_fused_sum_3", "reduction"),
        ("ncclDevKernel_AllReduce", "comm", "record_param_comms", "communication"),
        ("Memcpy DtoD (Device -> Device)", "copy", "aten::copy_", "copy"),
        ("my_kernel", "compute", "my::operator", "other"),
        # of collectives whose library no rule knows, nobody knows what they compute
        ("hccl_all_reduce", "compute", None, "other"),
        ("my_reduce_scatter_kernel", "compute", None, "other"),
        ("my_reduce_kernel", "compute", None, "reduction"),
        ("my_scatter_kernel", "compute", None, "embedding"),
        ("all_reduce_gemm", "compute", None, "gemm"),
    ],
)
def test_category(kernel, kind, operator, expected):
    assert category(kernel, kind, operator) == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (NVJET, True),
        (TF32, True),
        (SDPA, True),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", True),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_nn_align8>", True),
        ("turing_fp16_s1688gemm_fp16_128x64_ldg8_f2f_tn", True),
        ("flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>", True),
        (SGEMM, False),
        (FFMA, False),
        ("ampere_sgemm_128x64_nn", False),
        ("volta_sgemm_64x64_nt", False),
        ("turing_sgemm_64x32_sliced1x4_nn", False),
        ("volta_scudnn_128x64_relu_small_nn_v1", False),
        ("volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", True),
        ("gemv2T_kernel_val<int, int, float, float>", False),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", None),
        ("triton_tem_fused_mm_3", None),
    ],
)
def test_tensor_cores(kernel, expected):
    assert uses_tensor_cores(kernel) is expected


@pytest.mark.parametrize(
    ("kernel", "kind", "operators"),
    [
        ("triton_poi_fused_gelu_gelu_backward_view_5", "pointwise", ("gelu", "gelu_backward", "view")),
        ("triton_poi_fused__to_copy_add_0", "pointwise", ("_to_copy", "add")),
        (
            "triton_red_fused__unsafe_view_add_clone_permute_select_backward_sum_view_11",
            "reduction",
            ("_unsafe_view", "add", "clone", "permute", "select_backward", "sum", "view"),
        ),
        (
            "triton_per_fused_native_layer_norm_native_layer_norm_backward_1",
            "persistent reduction",
            ("native_layer_norm", "native_layer_norm_backward"),
        ),
        ("triton_tem_fused_addmm_3", "template", ("addmm",)),
    ],
)
def test_fusion(kernel, kind, operators):
    assert fusion(kernel) == (kind, operators)


@pytest.mark.parametrize("kernel", [NVJET, "triton_my_own_kernel", "my_triton_poi_fused_add_0"])
def test_other_kernels_are_no_fusion(kernel):
    assert fusion(kernel) is None
