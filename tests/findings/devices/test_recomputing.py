"""The rule about activations that the backward pass computes again."""

import pytest
from traceanalyzer.findings.devices.kernels import recomputed_activations

from tests import once
from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank

NAMES = ("headline", "steps", "operators", "replay", "ranks")
MS = 1_000_000
NODE = "autograd::engine::evaluate_function: LinearBackward0"


def found(again_ms, sequence=7, host_ms=3):
    """Findings where an autograd node of each of three steps of 100 ms runs an operator that launches at its end."""
    results = results_of(again_ms, sequence, host_ms)
    return recomputed_activations(*(results[name] for name in NAMES))


def results_of(again_ms, sequence=7, host_ms=3):
    begins = [100 * MS * step for step in range(3)]
    steps = [(f"ProfilerStep#{place}", start, start + 100 * MS) for place, start in enumerate(begins)]
    calls = [("cudaLaunchKernel", start + (10 + host_ms) * MS, start + (11 + host_ms) * MS) for start in begins]
    gemms = [start + (12 + host_ms) * MS for start in begins]
    ops = [("gemm", start, start + again_ms * MS, row) for row, start in enumerate(gemms, 1)]
    held = [(NODE, start + 10 * MS, start + (12 + host_ms) * MS, 1, 3, 1) for start in begins]
    held += [("aten::linear", start + 11 * MS, start + (11 + host_ms) * MS, 1, sequence) for start in begins]
    trace = host_trace(ops, calls, host_ops=held, ranges=steps)
    return combine({0: reduce_rank(trace, NAMES)}, NAMES)


@pytest.mark.parametrize(("again_ms", "is_said"), [(40, True), (4, False)])
def test_forward_work_in_the_backward_pass(again_ms, is_said):
    findings = found(again_ms)
    assert len(findings) == is_said
    if is_said:
        assert findings[0].title == (
            "The backward pass computes activations again: 40 ms of rank 0's GPU work, 40 % of a step, and 3 ms of its "
            "host's, 3 %."
        )
        assert (findings[0].gain_ns, findings[0].gain_is_bound) == (40 * MS, True)


def test_jobs_that_keep_their_activations_say_nothing():
    results = once.results("ddp")
    assert not recomputed_activations(*(results[name] for name in NAMES))
