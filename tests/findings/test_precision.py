"""Matrix work in more bits than the GPU's tensor cores take."""

import pytest

from tests.findings.one_gpu import found

GELU = ("aten::gelu", None, 20)


@pytest.mark.parametrize(
    ("kernel", "headline", "why", "fix"),
    [
        (
            "ampere_sgemm_128x64_nn",
            "Matrix products in FP32 take 40 ms/step.",
            "cublas sgemm 128×64 and others use no tensor cores; H200 SXM reaches 67 TFLOP/s in FP32, 495 in TF32.",
            'torch.set_float32_matmul_precision("high"), or torch.autocast in bfloat16.',
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x32_16x4_tn_align1>(cutlass::Params)",
            "Matrix products in FP64 take 40 ms/step.",
            "cutlass d884gemm 64×32 tn and others compute in 64 bits; H200 SXM reaches 67 TFLOP/s in FP64, 495 in TF32.",
            "Compute in float32 or lower: NumPy arrays and .double() make float64 tensors.",
        ),
    ],
    ids=["32 bits", "64 bits"],
)
def test_products_in_more_bits_than_needed(kernel, headline, why, fix):
    (one,) = found("precision", [("aten::mm", None, 40, kernel), GELU])
    assert (one.headline, one.why, one.fix) == (headline, why, fix)
    assert one.saves.likely_ns == pytest.approx(20e6 * (1 - 66.9 / 494.7), rel=0.01)


@pytest.mark.parametrize(
    "kernel",
    [
        "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT",
        "gemv2T_kernel_val<int, float>",
        "void implicit_convolve_sgemm<__half, __half, 128, 5, 5, 3, 3, 3, 1, false, false, true>(int, __half const*)",
    ],
)
def test_no_other_precision_makes_these_faster(kernel):
    assert not found("precision", [("aten::mm", None, 40, kernel), GELU])
