"""The rule about matrix work in 64 bits."""

import pytest
from traceanalyzer.findings.devices.kernels import double_precision

from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank

NAMES = ("headline", "kernels")
MS = 1_000_000


@pytest.mark.parametrize(
    ("name", "is_said"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x32_16x4_tn_align1>(cutlass::Params)", True),
        ("sm90_xmma_gemm_f64f64_f64f64_f64_nt_n_tilesize64x64x16_stage4", True),
        ("void internal::gemvx::kernel<int, int, double, double, double, double, false>(int)", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3", False),
        # A fused optimizer keeps its step's factors in 64 bits, whatever the parameters are.
        ("void multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>, float const*, double, double>(int)", False),
    ],
)
def test_products_in_64_bits(name, is_said):
    begins = [100 * MS * step for step in range(3)]
    steps = [(f"ProfilerStep#{place}", start, start + 100 * MS) for place, start in enumerate(begins)]
    calls = [("cudaLaunchKernel", start, start + 1000) for start in begins]
    ops = [(name, start + MS, start + 21 * MS, row + 1) for row, start in enumerate(begins)]
    results = combine({0: reduce_rank(host_trace(ops, calls, ranges=steps), NAMES)}, NAMES)
    findings = double_precision(*(results[name] for name in NAMES))
    assert len(findings) == is_said
    if is_said:
        assert findings[0].title.endswith("20 ms a step, 20 % of a step.")
