"""The rule about operators that take the CPU long by themselves."""

import pytest
from traceanalyzer.findings.hosts.cpu_work import slow_operators

from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank

NAMES = (
    "headline", "steps", "idle", "host_work", "operators", "operator_launches", "operator_shapes", "sync_calls",
    "episodes", "places", "ranks",
)  # fmt: skip
MS = 1_000_000
STEP = 100 * MS


def found(operator, call="cudaLaunchKernel", call_ms=1, ranks=1, inner=(), launches=1, name="aten::plan"):
    """Findings where each of three steps of 100 ms has an operator; the products of its calls at the end follow it."""
    begin, end = operator
    begins = [STEP * step for step in range(3)]
    steps = [(f"ProfilerStep#{place}", start, start + STEP) for place, start in enumerate(begins)]
    calls, ops = [], []
    for start in begins:
        since, product = start + (end - call_ms) * MS, start + (end + 1) * MS
        for place in range(launches - 1):  # short ones before the one that is said
            calls.append((call, since - (launches - place) * 1_000, since - (launches - place) * 1_000 + 500))
            ops.append(
                ("gemm", product - (launches - place) * 1_000, product - (launches - place) * 1_000 + 500, len(calls))
            )
        calls.append((call, since, start + end * MS))
        ops.append(("gemm", product, product + 5 * MS, len(calls)))
    held = [(name, start + begin * MS, start + end * MS, 1) for start in begins]
    held += [(other, start + since * MS, start + until * MS, 1) for other, since, until in inner for start in begins]
    parts = {
        rank: reduce_rank(host_trace(ops, calls, host_ops=held, ranges=steps, rank=rank), NAMES)
        for rank in range(ranks)
    }
    results = combine(parts, NAMES)
    return slow_operators(*(results[name] for name in NAMES))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"operator": (10, 60)}, "inside aten::plan (49 ms a call) without launching: 49 ms a step, 49 % of a step."),
        ({"operator": (10, 60), "ranks": 2}, "49 % of a step; the same on both ranks."),
        ({"operator": (50, 58)}, None),
        # Python runs in it, as FSDP's hooks do.
        ({"operator": (10, 60), "name": "RegisterPostBackwardFunctionBackward"}, None),
        # What the call that launches takes is none of it, nor what an inner operator does.
        ({"operator": (10, 60), "call_ms": 49}, None),
        # It takes 49 ms for 60 launches: that is how launching goes.
        ({"operator": (10, 60), "launches": 60}, None),
        (
            {"operator": (10, 60), "inner": [("lib::inner", 11, 58)]},
            "inside lib::inner (47 ms a call) and aten::plan (2 ms a call)",
        ),
    ],
)
def test_an_operator_that_takes_the_cpu_long_itself(arguments, said):
    findings = found(**arguments)
    assert len(findings) == (said is not None)
    if said:
        assert findings[0].title.startswith("Rank 0's CPU is busy inside ")
        assert said in findings[0].title
        assert findings[0].gain_is_bound
        assert findings[0].recommendation.startswith("Choose another implementation of ")
