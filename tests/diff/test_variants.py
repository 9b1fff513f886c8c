import pandas as pd
import pytest

from traceanalyzer.diff import joins

VECTOR = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
UNROLLED = "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>, std::array<char*, 3ul> >(int)"


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(args)", "gemm"),
        ("triton_tem_fused_mm_3", "gemm"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_6_64x64x128_4x1x1_kernel0_0", "attention backward"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>(args)", "attention forward"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", "NCCL all_reduce"),
        ("triton_poi_fused_add_mul_7", "triton_poi_fused_add_mul"),
    ],
)  # fmt: skip
def test_operation_of_a_kernel(name, operation):
    assert joins.operation(name) == operation


def test_width_and_type_make_no_other_operation_but_the_functor_does():
    assert joins.operation(VECTOR) == joins.operation(UNROLLED)
    assert joins.operation(VECTOR) != joins.operation(MUL)


@pytest.mark.parametrize(
    ("kineto", "nsys", "operation"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
         "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, std::array<char *, (unsigned long)3>>(int, T2, T3)",
         "elementwise_kernel CUDAFunctor_add"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float, float const*)",
         "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2, const T1 *)",
         "vectorized_layer_norm_kernel"),
        ("my_kernel(float*)", "my_kernel(float *)", "my_kernel"), ("plain", "plain", "plain"), ("12", "12", "12"),
    ],
)  # fmt: skip
def test_both_profilers_ways_to_write_a_kernel_are_one_operation(kineto, nsys, operation):
    assert joins.operation(kineto) == joins.operation(nsys) == operation


def kernels(*rows):
    return pd.DataFrame(rows, columns=["name", "calls", "total_ns"])


@pytest.mark.parametrize(
    ("base", "other", "pairs"),
    [
        ([("nvjet_a", 12, 120)], [("nvjet_b", 12, 60)], [(["nvjet_a"], ["nvjet_b"])]),
        # Same calls: the longer with the longer.
        ([("nvjet_a", 12, 10), ("nvjet_b", 12, 90)], [("nvjet_c", 12, 80), ("nvjet_d", 12, 20)],
         [(["nvjet_b"], ["nvjet_c"]), (["nvjet_a"], ["nvjet_d"])]),
        # Other calls: what is left of an operation is one group.
        ([("nvjet_a", 12, 120)], [("nvjet_b", 6, 60), ("nvjet_c", 6, 50)], [(["nvjet_a"], ["nvjet_b", "nvjet_c"])]),
        ([("nvjet_a", 12, 120)], [("copy_kernel", 12, 60)], []),
        ([("nvjet_a", 12, 120), ("nvjet_b", 3, 5)], [("nvjet_c", 12, 60)], [(["nvjet_a"], ["nvjet_c"])]),
        ([], [("nvjet_a", 1, 1)], []),
    ],
)  # fmt: skip
def test_pairs(base, other, pairs):
    assert joins.pairs(kernels(*base), kernels(*other)) == pairs
    swapped = joins.pairs(kernels(*other), kernels(*base))
    assert [(two, one) for one, two in swapped] == pairs
