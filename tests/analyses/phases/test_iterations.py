"""Iterations of inference engines: what is one, which phase it is, how many tokens it computes."""

import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses.phases import micro_steps
from traceanalyzer.analyses.phases.micro_steps import told_by
from traceanalyzer.analyses.time import steps
from traceanalyzer.findings.hosts.launch_bound import launch_bound_iterations


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("execute_context_1(888_788544)_generation_0(0)", ("prefill", 1, 888, 0, 0)),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", ("decode", 0, 0, 32, 32)),
        ("execute_context_2(64)_generation_3(3)", ("mixed", 2, 64, 3, 3)),
        ("execute_context_9(4)", ("prefill", 9, 4, 0, 0)),
        ("step[DECODE bs=63]", ("decode", 0, 0, 63, 63)),
        ("[Executor] _forward_step: 3 ctx reqs, 14 gen reqs", ("mixed", 3, None, 14, None)),
        ("[Executor] _forward_step 12: 2 ctx reqs, 0 gen reqs", ("prefill", 2, None, 0, 0)),
        ("[Executor] _forward_step 60000: 0 ctx reqs, 0 ctx tokens, 32 gen reqs", ("decode", 0, 0, 32, None)),
        ("[Executor] _forward_step 7: 2 ctx reqs, 512 ctx tokens, 0 gen reqs", ("prefill", 2, 512, 0, 0)),
        ("step[EXTEND bs=2 toks=107]", ("prefill", 2, 107, 0, 0)),
        ("step[EXTEND bs=2]", ("prefill", 2, None, 0, 0)),
        ("step[MIXED bs=2]", ("mixed", None, None, None, None)),
        ("forward_decode", ("decode", None, None, None, None)),
        ("forward_extend", ("prefill", None, None, None, None)),
        ("execute_new_3_cached_0", ("prefill", 3, None, 0, 0)),
        ("execute_new_0_cached_8", None),  # prompts may come in pieces
        ("execute_new_1_cached_8", None),
        ("train_step", None),
    ],
)
def test_what_an_annotation_tells(name, expected):
    told = told_by(name)
    assert (tuple(told.values()) if told else None) == expected


def test_iterations_are_steps_numbered_by_place():
    ranges = [("execute_context_1(40)_generation_0(0)", 0, 10), ("execute_context_0(0)_generation_4(4)", 20, 30),
              ("execute_context_0(0)_generation_5(5)", 40, 50)]  # fmt: skip
    calls = [("cudaLaunchKernel", 1, 2), ("cudaLaunchKernel", 21, 22), ("cudaLaunchKernel", 41, 42)]
    trace = host_trace([("gemm", 5, 15, 1), ("gemm", 25, 30, 2), ("gemm", 45, 50, 3)], calls, ranges=ranges)
    assert trace.steps["step"].tolist() == [0, 1, 2]


def _decode(idle, *, call="cudaLaunchKernel", without_launch=0):
    """Three iterations of 100 ns, of which the GPU idles for so long."""
    ranges = [(f"execute_context_0(0)_generation_4({4 + i})", 100 * i, 100 * i + 90) for i in range(3)]
    calls = [(call, 100 * i + 1, 100 * i + 2) for i in range(3)]
    ops = [("gemm", 100 * i + 5, 105 + 100 * i - idle, i + 1) for i in range(3)]
    ops += [("gemm", 300 + i, 301 + i, -1) for i in range(without_launch)]
    return host_trace(ops, calls, ranges=ranges)


def _table(trace):
    return micro_steps.Iterations.of_ranks({0: micro_steps.iterations_per_rank(trace, steps.per_rank(trace))})


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (_decode(60), "rank 0's GPU idles 56.7 ns, 59 % of an iteration (1 operations, none of them from a graph)."),
        (_decode(20), None),
        (_decode(60, call="cudaGraphLaunch"), None),
        (_decode(60, without_launch=4), None),  # graphs whose launches are lost: what an iteration ran is not known
    ],
)  # fmt: skip
def test_launch_bound_decode_is_seen(trace, said):
    table = _table(trace)
    assert [finding.title for finding in launch_bound_iterations(table)] == (
        [f"Decode is bound by launches: {said}"] if said else []
    )


def test_iterations_have_their_tokens_and_rates():
    trace = _decode(60)
    table = _table(trace)
    row = table.rows()[1]
    assert (row["phase"], row["decode_tokens"], row["window_ns"], row["idle_pct"]) == ("decode", 5, 100, 60.0)
    assert row["tokens_per_s"] == pytest.approx(5e9 / 100)


def test_idle_time_between_iterations_is_that_in_which_no_annotation_is_open():
    """Each is open for 90 of 100 ns, and its GPU idles until 5 ns after the next one begins."""
    assert _table(_decode(12)).table["between_ns"].tolist() == [7, 7, 0]
    assert _table(_decode(60)).table["between_ns"].tolist() == [10, 10, 0]
