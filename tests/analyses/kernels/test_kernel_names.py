"""Categories, tensor cores and fused operators from names that real traces hold."""

import pytest

from traceanalyzer.analyses.kernels import category

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
