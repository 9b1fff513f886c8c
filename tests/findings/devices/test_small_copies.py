"""The rule about data that is copied in many small pieces."""

import pytest
from traceanalyzer.findings.devices.copies import small_copies

from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank

NAMES = ("headline", "steps", "copies", "launch_loops", "episodes", "places", "replay")
MS, US = 1_000_000, 1_000


def results_of(count=60, *, step_ms=20, gemm_ms=1, length_us=2, with_operators=True):
    """Steps in which the host copies so often, 200 µs each in `aten::to`, 50 of it in the call; then a product."""
    begins = [step_ms * MS * step for step in range(3)]
    steps = [(f"ProfilerStep#{place}", start, start + step_ms * MS) for place, start in enumerate(begins)]
    calls, ops, held = [], [], []
    for start in begins:
        for place in range(count):
            at = start + 200 * US * place
            calls.append(("cudaMemcpyAsync", at + 100 * US, at + 150 * US))
            ops.append(("HtoD", at + 120 * US, at + (120 + length_us) * US, len(calls)))
            held += [("aten::to", at, at + 200 * US), ("aten::copy_", at + 90 * US, at + 160 * US)]
        at = start + 200 * US * count
        held.append(("mine::batch", start, at))  # what makes several copies is no one's own
        calls.append(("cudaLaunchKernel", at, at + 10 * US))
        ops.append(("gemm", at + 20 * US, at + 20 * US + gemm_ms * MS, len(calls)))
        held.append(("aten::mm", at, at + 10 * US))
    trace = host_trace(ops, calls, host_ops=held if with_operators else (), ranges=steps)
    return combine({0: reduce_rank(trace, NAMES)}, NAMES)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            {},
            "60 times a step to its GPU, 20 kB on average: making these copies takes it 12 ms a step, 60 % of a step.",
        ),
        ({"with_operators": False}, "takes it 3 ms a step, 15 % of a step."),
        ({"count": 49}, None),
        # 1.05 MB each: a link that is slow to carry them is another matter.
        ({"length_us": 105}, None),
        ({"step_ms": 300, "gemm_ms": 280}, None),
    ],
)
def test_many_small_copies(made, said):
    results = results_of(**made)
    findings = small_copies(*(results[name] for name in NAMES))
    assert len(findings) == (said is not None)
    if said:
        assert said in findings[0].title
        assert "Copied as one, with nothing between, a mean step would be 11.8 ms shorter." in findings[0].title
        assert (findings[0].gain_is_bound, findings[0].gain_ns) == (False, pytest.approx(12 * MS, rel=0.02))
