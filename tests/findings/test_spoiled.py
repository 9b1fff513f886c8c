"""Gains of captures that tell less than they seem to."""

from dataclasses import replace

from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.findings.capture_limits import _as_bound, _held_to_capture, within_limits
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.won import Title, Won

LATE = Finding("high", Title("Rank 1 computes. Mended, a mean step is ", Won(3_000_000, is_bound=False), "."),
               gain_ns=3_000_000, gain_is_bound=False, rule="late_ranks")  # fmt: skip
WARM = Finding("high", "Step 0 is a warm-up.", steps=(0,), is_about_capture=True, rule="warm_up")


def test_gains_are_bounds_in_flag_and_words():
    assert _held_to_capture([LATE]) == [LATE]
    warm, late = _held_to_capture([WARM, LATE])
    assert warm == WARM
    assert late.gain_is_bound
    assert late.title.endswith("Mended, a mean step is at most 3 ms shorter.")
    assert _as_bound(late) == late


def test_what_happens_in_a_warm_up_alone_is_not_said():
    assert _held_to_capture([WARM, replace(LATE, steps=(0,))]) == [WARM]


def test_damaged_times_make_no_warm_up():
    zero = host_trace(
        [("gemm", 10 * n, 10 * n, n + 1) for n in range(9)], [("cudaLaunchKernel", 9 * n, 9 * n + 1) for n in range(9)]
    )
    damaged = Finding("high", "Times cannot be true.", is_about_capture=True, rule="impossible_times")
    assert within_limits([WARM, damaged], run([zero], ["integrity", "headline"])) == [damaged]
