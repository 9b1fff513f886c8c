"""What a change gains, in which part of the step, and how sure that is."""

import pytest

from traceanalyzer.analyses.replay.gain import Gain


@pytest.mark.parametrize(
    ("before_ns", "after_ns", "gain_ns", "gain_pct"),
    [(1_000, 900, 100, 10.0), (1_000, 1_100, 0, 0.0), (0, 0, 0, 0.0)],
    ids=["shorter", "longer", "of no length"],
)
def test_a_gain_is_what_the_step_is_shorter(before_ns, after_ns, gain_ns, gain_pct):
    gain = Gain(before_ns, after_ns, 0)
    assert (gain.gain_ns, gain.gain_pct, gain.unprofiled_gain_ns) == (gain_ns, gain_pct, None)


@pytest.mark.parametrize(("unprofiled_ns", "gain_ns"), [((500, 450), 50), ((500, 500), 0), ((450, 500), 0)])
def test_without_the_profiler_it_is_what_that_step_is_shorter(unprofiled_ns, gain_ns):
    assert Gain(1_000, 900, 0, unprofiled_ns=unprofiled_ns).unprofiled_gain_ns == gain_ns


@pytest.mark.parametrize(
    ("error_ns", "unmatched_ns", "lacks_hosts", "is_bound", "is_lower_bound"),
    [
        (30_000, 30_000, False, False, False),
        (30_001, 0, False, True, False),
        (0, 30_001, False, True, True),
        (0, 0, True, True, False),
    ],
    ids=["3 % of both", "more is missed", "more is not known", "without hosts"],
)
def test_a_gain_of_a_model_that_is_off_by_3_percent_is_a_bound(
    error_ns, unmatched_ns, lacks_hosts, is_bound, is_lower_bound
):
    gain = Gain(1_000_000, 900_000, error_ns, unmatched_ns, lacks_hosts=lacks_hosts)
    assert (gain.is_bound, gain.is_lower_bound) == (is_bound, is_lower_bound)
