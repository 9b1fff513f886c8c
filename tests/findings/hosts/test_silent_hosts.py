"""The rule about what hosts do that no tool recorded, and the stretches that it reads."""

import pytest
from traceanalyzer.findings.hosts.cpu_work import silent_hosts

from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank
from traceanalyzer.findings.finding import Finding, folded

NAMES = ("headline", "steps", "idle", "host_silences", "step_needs", "episodes", "places", "replay")
MS = 1_000_000
STEP = 100 * MS


def results_of(held=(), ranges=(), silent=((10, 60),), steps=3, ranks=1, only=None, **parts):
    """Steps of 100 ms: before and after each silent stretch an operator launches a product, which runs at once."""
    begins = [STEP * step for step in range(steps)]
    named = [(f"ProfilerStep#{place}", start, start + STEP) for place, start in enumerate(begins)]
    calls, ops, operators = [], [], []
    for step, start in enumerate(begins):
        own_times = [time for own in silent for time in own] if only is None or step in only else []
        moments = [start + round(time * MS) for time in (0.2, *own_times, 99.8)]
        for since, until in zip(moments[::2], moments[1::2], strict=True):
            for begin in range(since, until, MS // 2):  # launching goes on in between
                calls.append(("cudaLaunchKernel", begin, begin + MS // 4))
                ops.append(("gemm", begin + 20_000, begin + MS // 2, len(calls)))
                operators.append((f"aten::op{since // MS % 100}", begin, begin + MS // 4, 1))
    operators += [
        (name, start + since * MS, start + until * MS, thread)
        for name, since, until, thread in held
        for start in begins
    ]
    named += [(name, start + since * MS, start + until * MS) for name, since, until in ranges for start in begins]
    traces = {
        rank: reduce_rank(host_trace(ops, calls, host_ops=operators, ranges=named, rank=rank, **parts), NAMES)
        for rank in range(ranks)
    }
    return combine(traces, NAMES)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "for 50.0 ms a step, in one stretch between aten::op0 and aten::op60: its GPU idles 49.8 ms of it, 50 % of a step."),
        ({"ranks": 2}, "50 % of a step; the same on both ranks."),
        ({"ranges": [("forward", 5, 70)]}, "between aten::op0 and aten::op60, in forward: its GPU"),
        # A range that launches nothing says what it is itself; an operator, too, on the thread that launches.
        ({"ranges": [("tokenise", 11, 59)]}, None),
        ({"held": [("aten::sort", 11, 59, 1)]}, None),
        # What other threads do says nothing of this one.
        ({"held": [("aten::sort", 11, 59, 9)]}, "in one stretch between aten::op0 and aten::op60"),
        ({"silent": ((10, 16),)}, None),
        ({"silent": ((10, 30), (40, 70))}, "for 50.3 ms a step, in 2 stretches, most of it between aten::op30 and aten::op70"),
    ],
)  # fmt: skip
def test_what_a_host_does_is_not_recorded(arguments, said):
    results = results_of(**arguments)
    findings = silent_hosts(*(results[name] for name in NAMES))
    assert len(findings) == (said is not None)
    if said:
        (one,) = findings
        assert one.title.startswith("Nothing is recorded of what rank 0's host does for ")
        assert said in one.title
        assert one.gain_ns == pytest.approx(50 * MS, rel=0.02)
        assert "record_function" in one.recommendation
        late = Finding("high", "A host is late.", recommendation="Look at its CPU.", gain_ns=60 * MS, about=one.part_of)
        (told,) = folded([late, one])
        assert told.recommendation == one.recommendation, "what is most of a lateness says what to do about it"


def test_launching_with_python_between_is_no_silence():
    results = results_of(silent=((10, 10.9), (12, 12.9), (14, 14.9)))
    assert not len(results["host_silences"])
