"""What the host was doing in a gap."""

import pytest

from tests.host_builders import host_trace
from tests.samples import sample
from traceanalyzer.analyses import run

US = 1_000
OPS = [("gemm", 0, 10 * US, 1), ("relu", 110 * US, 120 * US, 2)]
CALLS = [("cudaLaunchKernel", -5 * US, -1 * US), ("cudaLaunchKernel", 95 * US, 100 * US)]

CASES = {
    "the innermost operator with most time": (
        {"host_ops": [("aten::linear", 10 * US, 90 * US, 1), ("aten::addmm", 15 * US, 80 * US, 1)]},
        ("aten::addmm", 65)),
    "an operator that is interrupted counts what is left": (
        {"host_ops": [("aten::linear", 10 * US, 90 * US, 1), ("aten::t", 20 * US, 50 * US, 1)]},
        ("aten::linear", 50)),
    "several of one name add up": (
        {"host_ops": [("aten::t", 10 * US, 35 * US, 1), ("aten::mm", 35 * US, 65 * US, 1), ("aten::t", 65 * US, 90 * US, 1)]},
        ("aten::t", 50)),
    "a range, when only Python ran in it": (
        {"ranges": [("Optimizer.step#AdamW.step", 5 * US, 105 * US)]}, ("Optimizer.step#AdamW.step", 85)),
    "a call": (
        {"host_ops": [("aten::empty", 12 * US, 90 * US, 1)], "more": [("cudaMalloc", 14 * US, 89 * US)]},
        ("cudaMalloc", 75)),
    "another thread does not count": (
        {"host_ops": [("aten::linear", 10 * US, 90 * US, 2)]}, ("(nothing recorded)", 85)),
}  # fmt: skip


@pytest.mark.parametrize(("host", "expected"), CASES.values(), ids=CASES)
def test_what_the_host_was_doing(host, expected):
    more = host.get("more", [])
    trace = host_trace(OPS, [*CALLS, *more], host_ops=host.get("host_ops", ()), ranges=host.get("ranges", ()))
    (gap,) = run([trace], ["gaps"])["gaps"].rows()
    name, length_us = expected
    assert (gap["doing"], gap["doing_ns"]) == (name, length_us * US)
    assert (gap["cause"], gap["ended_by"], gap["length_ns"]) == ("host", "relu", 100 * US)


def test_rank_0_of_ddp_idles_because_its_host_is_late():
    trace = sample("ddp").ranks[0]
    results = run([trace], ["idle", "gaps"])
    whole = results["idle"].rows()[0]
    assert whole["host_ns"] > 0.9 * whole["idle_ns"]
    longest = results["gaps"].to_frame().sort_values("length_ns", ascending=False).head(3)
    assert set(longest["doing"]) == {"Optimizer.step#AdamW.step"}
    assert set(longest["range"]) == {"Optimizer.step#AdamW.step"}
