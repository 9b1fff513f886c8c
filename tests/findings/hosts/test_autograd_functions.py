"""The rule about functions of one's own for autograd that launch much."""

from traceanalyzer.findings.hosts.launch_bound import autograd_functions

from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank

NAMES = ("headline", "steps", "idle", "operators", "episodes", "places", "replay", "ranks")
MS = 1_000_000
STEP = 100 * MS


def found(name="Norm", calls=20, call_ms=2.0, *, own=False, within=None):
    """Findings where each of three steps of 100 ms calls it; operators within launch, or it does itself."""
    steps = [(f"ProfilerStep#{place}", place * STEP, (place + 1) * STEP) for place in range(3)]
    held, launched, ops = [], [], []
    for _, begin, _ in steps:
        for number in range(calls):
            since = begin + number * STEP // calls
            until = since + round(call_ms * MS)
            held.append((name, since, until, 1))
            if within:
                held.append((within, since + 500, until - 500, 1))
            if not own:
                held.append(("aten::mul", since + 1_000, until - 1_000, 1))
            launched.append(("cudaLaunchKernel", until - 10_000, until - 5_000))
            ops.append(("mul", until + 10_000, until + 20_000, len(launched)))
    trace = host_trace(ops, launched, host_ops=held, ranges=steps)
    results = combine({0: reduce_rank(trace, NAMES)}, NAMES)
    return autograd_functions(*(results[name] for name in NAMES))


def test_a_function_is_told_with_its_calls_and_what_it_takes():
    (said,) = found()
    assert "takes 40 ms a step for autograd's function Norm (20 times a step, 2 ms each): 40 % of a step." in said.title
    assert "Norm" in said.recommendation
    assert 0 < said.gain_ns <= 40 * MS
    assert said.gain_is_bound
