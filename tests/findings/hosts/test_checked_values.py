"""The rule about tensors that a program asks one by one whether they are finite."""

import pytest
from traceanalyzer.findings.hosts.cpu_work import checked_values

from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank

NAMES = ("headline", "steps", "operators", "launch_loops", "episodes", "places", "replay", "ranks")
MS = 1_000_000


def results_of(checks, name="aten::isfinite", others=0, step_ms=100, sums=99):
    """Steps in which the host asks for each tensor, reading the answer; before, `others` that it reads without.

    Of the first `sums` of them all it asks for all of their values, too.
    """
    begins = [step_ms * MS * step for step in range(3)]
    steps = [(f"ProfilerStep#{place}", start, start + step_ms * MS) for place, start in enumerate(begins)]
    calls, ops, held = [], [], []
    for start in begins:
        for place in range(others + checks):
            begin = start + 2 * MS * place
            asked = [(name, begin, begin + MS // 2), ("aten::all", begin + MS // 2, begin + MS)][: 1 + (place < sums)]
            held += [*(asked if place >= others else ()), ("aten::item", begin + MS, begin + 3 * MS // 2)]
            calls.append(("cudaLaunchKernel", begin, begin + MS // 4))
            ops.append(("reduce", begin + MS // 4, begin + MS // 2, len(calls)))
    return combine({0: reduce_rank(host_trace(ops, calls, host_ops=held, ranges=steps), NAMES)}, NAMES)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"checks": 20}, "asks 20 times a step, of one tensor after the other, whether its values are finite"),
        # What is read back besides is no check.
        ({"checks": 20, "name": "aten::isnan", "others": 20}, "asks 20 times a step"),
        ({"checks": 20, "sums": 10}, "and reads each answer back: 25 ms a step, 25.0 % of a step."),
        ({"checks": 20, "name": "aten::ne"}, None),
        ({"checks": 9}, None),
        ({"checks": 10, "step_ms": 600}, None),
    ],
)  # fmt: skip
def test_each_tensor_is_checked(made, said):
    results = results_of(**made)
    findings = checked_values(*(results[name] for name in NAMES))
    assert len(findings) == (said is not None)
    if said:
        assert said in findings[0].title
        # Each check, with what Python does up to the next one, takes 2 ms.
        assert not findings[0].gain_is_bound
        assert findings[0].gain_ns == pytest.approx((made["checks"] - 1) * 2 * MS, rel=0.1)
