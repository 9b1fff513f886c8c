"""Each rule speaks when its case is there, with the cost of a mean step, and is silent otherwise."""

from functools import partial

import pytest
from traceanalyzer.findings.devices import copies
from traceanalyzer.findings.hosts import idle, launch_bound

from tests import once
from tests.asked import said_of
from tests.findings.needed import needed_by
from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.findings import pipelines, uneven_stages

MS = 1_000_000


def told(rule, traces):
    return rule(**run(traces, needed_by(rule)))


def told_of(name, rule):
    return rule(**once.results(name, needed_by(rule)))


def train(gap_ms, *, steps=3, name="gemm", host=(), memory="pinned", ranges=(), blocking=None, rank=0):
    """Steps of one 10 ms operation each, with a gap before it in which the host does something.

    Beside what is no kernel one of 10 µs runs: of ranks that only copy no gain is known.
    """
    period = (10 + gap_ms) * MS
    calls, ops, marks = [], [], []
    for number in range(steps):
        start = number * period
        launch = start - MS // 10
        returns = launch + 1_000 if memory == "pinned" else start + 10 * MS
        calls.append(("cudaLaunchKernel" if name == "gemm" else "cudaMemcpyAsync", launch, returns))
        ops.append((name, start, start + 10 * MS, len(calls), 7, memory))
        if name != "gemm":
            calls.append(("cudaLaunchKernel", launch - 2_000, launch - 1_000))
            ops.append(("gemm", start, start + 10_000, len(calls), 8))
        marks.append((f"ProfilerStep#{number}", start - gap_ms * MS, start + 10 * MS))
        if blocking:
            calls.append((blocking, start + MS, start + (10 + gap_ms // 2) * MS))
    more = [(label, mark[1] + MS, mark[2] - 10 * MS - MS) for label in ranges for mark in marks]
    return host_trace(ops, calls, host_ops=host, ranges=[*marks, *more], rank=rank)


@pytest.mark.parametrize(
    ("rule", "trace", "quiet", "cost_ms"),
    [
        (launch_bound.host_bound, partial(train, 10), partial(train, 0), 9.9),
        (idle.data_loader, partial(train, 10, ranges=["## data ##"]), partial(train, 10), 8.0),
        (
            idle.synchronising_calls,
            partial(train, 10, blocking="cudaStreamSynchronize"),
            partial(train, 10, blocking="cudaEventQuery"),
            10 / 3,  # the call returns in the middle of two of three gaps
        ),
        (
            copies.pageable_copies,
            partial(train, 0, name="HtoD", memory="pageable"),
            partial(train, 0, name="HtoD"),
            5.042,  # the last step ends with its copy
        ),
    ],
)
def test_a_rule_speaks_of_its_case_only(rule, trace, quiet, cost_ms):
    (finding,) = told(rule, [trace()])
    assert finding.gain_ns / MS == pytest.approx(cost_ms, rel=0.02)
    assert finding.evidence
    assert finding.recommendation
    assert finding.caveat
    assert told(rule, [quiet()]) == []


def test_a_gpu_bound_run_has_none_of_these():
    results = once.results("moe")
    for rule in (launch_bound.host_bound, idle.short_kernels, idle.synchronising_calls, idle.data_loader):
        assert rule(**{name: results[name] for name in needed_by(rule)}) == []


def test_the_pipeline_sample_is_uneven_and_waits():
    (uneven,) = told_of("pp", uneven_stages.pipeline_imbalance)
    assert uneven.title.startswith("Stage 1 (rank 1) computes 107 ms a step, stage 0 65.5 ms and waits for it")
    (bubble,) = told_of("pp", pipelines.pipeline_bubble)
    assert "waits 31 % of its time (20 % expected of 2 stages and 4 microbatches), most on rank 0: 47 %" in bubble.title
    assert "Move layers from stage 1 to stage 0" in bubble.recommendation
    # At 20 % of bubble the (106.7 + 65.5) / 2 ms of compute of a mean stage would take 107.6 ms of the 125.4; what lies
    # between and after the passes is not evened out.
    assert bubble.gain_ns / MS == pytest.approx(14.9, abs=0.1)
    assert bubble.gain_is_bound
    assert "twice the microbatches, or stages a rank, at best by" in bubble.recommendation


@pytest.mark.parametrize("traces", [[], [host_trace()]], ids=["no rank", "an empty rank"])
def test_nothing_to_say_about_nothing(traces):
    assert said_of(*traces) == ()
