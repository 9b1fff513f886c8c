"""The rule about autograd's detection of anomalies, left on."""

import pytest
from traceanalyzer.findings.hosts.cpu_work import checked_gradients

from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank

NAMES = ("headline", "steps", "operators", "episodes", "places", "ranks")
MS = 1_000_000
NODE = "autograd::engine::evaluate_function: LinearBackward0"


@pytest.mark.parametrize(
    ("checks", "name", "said"),
    [(20, "aten::_is_any_true", True), (5, "aten::_is_any_true", False), (20, "aten::any", False)],
)
def test_autograd_checks_each_gradient(checks, name, said):
    begins = [100 * MS * step for step in range(3)]
    steps = [(f"ProfilerStep#{place}", start, start + 100 * MS) for place, start in enumerate(begins)]
    calls, ops, held = [], [], []
    for start in begins:
        for place in range(checks):
            begin = start + 4 * MS * place
            held.append((NODE, begin, begin + 3 * MS, 1, 3, 1))
            held += [
                ("aten::isnan", begin, begin + MS),
                (name, begin + MS, begin + 2 * MS),
                ("aten::item", begin + 2 * MS, begin + 3 * MS),
            ]
            calls.append(("cudaLaunchKernel", begin, begin + MS // 2))
            ops.append(("reduce", begin + MS, begin + 2 * MS, len(calls)))
    results = combine({0: reduce_rank(host_trace(ops, calls, host_ops=held, ranges=steps), NAMES)}, NAMES)
    findings = checked_gradients(*(results[name] for name in NAMES))
    assert len(findings) == said
    if said:
        assert "detect_anomaly is on" in findings[0].title
        assert (
            "is in 20 such checks for 60 ms a step, 60 % of a step, and waits for its GPU in each." in findings[0].title
        )
        assert findings[0].gain_ns == 60 * MS
