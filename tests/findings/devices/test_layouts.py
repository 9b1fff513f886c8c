"""The rule about kernels that turn tensors from one layout into the other."""

import pytest
from traceanalyzer.findings.devices.kernels import layout_conversions

from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank

NAMES = ("headline", "kernels")
MS = 1_000_000


@pytest.mark.parametrize(
    ("name", "length_ms", "said"),
    [
        ("void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float>(int)", 8, "8 ms a step, 8 % of a step."),
        ("void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float>(int)", 2, None),
        ("sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", 8, None),
    ],
)  # fmt: skip
def test_kernels_that_turn_layouts(name, length_ms, said):
    begins = [100 * MS * step for step in range(3)]
    steps = [(f"ProfilerStep#{place}", start, start + 100 * MS) for place, start in enumerate(begins)]
    calls = [("cudaLaunchKernel", start + own, start + own + 1000) for start in begins for own in (0, MS)]
    ops = [op for row, start in enumerate(begins) for op in (
        ("gemm", start + MS, start + 60 * MS, 2 * row + 1), (name, start + 60 * MS, start + (60 + length_ms) * MS, 2 * row + 2))]  # fmt: skip
    results = combine({0: reduce_rank(host_trace(ops, calls, ranges=steps), NAMES)}, NAMES)
    findings = layout_conversions(*(results[name] for name in NAMES))
    assert len(findings) == (said is not None)
    if said:
        assert findings[0].title.endswith(said)
        assert "nchwToNhwcKernel" in findings[0].title
        assert findings[0].gain_ns == length_ms * MS
        assert "channels_last" in findings[0].recommendation
