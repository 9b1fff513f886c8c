"""Gains of captures that tell less than they seem to."""

from dataclasses import replace

from traceanalyzer.findings.capture_limits import _as_bound, _held_to_capture
from traceanalyzer.findings.finding import Finding

LATE = Finding(
    "high", "Rank 1 computes. Mended, a mean step is 3 ms shorter.", gain_ns=3, gain_is_bound=False, rule="late_ranks"
)
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
