"""How an answer says what its gain is: a forecast with its error, or which bound and why."""

import pytest

from traceanalyzer.analyses.replay.answer import Answer
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain

MS = 1_000_000


@pytest.mark.parametrize(
    ("after_ms", "error_ms", "unmatched_ms", "said"),
    [
        (80, 1, 0, "gain 20 ms; replayed unchanged it is 1 ms off"),
        (100, 1, 0, "no gain; replayed unchanged it is 1 ms off"),
        (110, 1, 0, "10 ms longer; replayed unchanged it is 1 ms off"),
        (80, 5, 0, "gain at most 20 ms, a bound and no forecast: 5 ms (5.0 %) are not explained by the graph"),
        (80, 1, 4, ("gain 20 ms, a bound and no forecast: waits stay as they are in 4 ms a rank of communication "
                   "whose partners are not known")),
        (80, 5, 4, ("gain 20 ms, a bound and no forecast: 5 ms (5.0 %) are not explained by the graph, and waits stay "
                   "as they are in 4 ms a rank of communication whose partners are not known")),
    ],
)  # fmt: skip
def test_a_gain_is_a_forecast_or_a_bound(after_ms, error_ms, unmatched_ms, said):
    gain = Gain(100 * MS, after_ms * MS, error_ms * MS, unmatched_ms * MS, steps=2)
    answer = Answer((Change("comm"),), gain, {}, {})
    assert answer.lines()[0] == f"step 100 ms → {after_ms} ms: {said}"


def test_a_gain_without_hosts_is_the_most_that_there_may_be():
    gain = Gain(100 * MS, 80 * MS, MS, steps=2, lacks_hosts=True)
    assert gain.is_bound
    assert Answer((Change("comm"),), gain, {}, {}).lines()[0].endswith(
        "gain at most 20 ms, a bound and no forecast: hosts that are not in the capture may not launch a shorter one "
        "in time"
    )  # fmt: skip


def test_what_gains_nothing_without_the_profiler_is_no_gain():
    gain = Gain(100 * MS, 80 * MS, 0, unprofiled_ns=(60 * MS, 60 * MS), steps=2)
    assert Answer((Change("comm"),), gain, {}, {}).lines()[1].endswith("60 ms → 60 ms, no gain")


@pytest.mark.parametrize(
    ("by_cost", "said"),
    [
        ({"none": (60, 48), "least": (60, 48)}, "48 ms, gain 12 ms; it may be 45.6 to 50.4 ms after the change"),
        ({"none": (60, 48), "least": (70, 67), "most": (50, 35)},
         ("48 ms, gain 12 ms; it may be 33.2 to 70.3 ms after the change and the gain 3 to 15 ms, by what recording "
          "takes the hosts")),
    ],
)  # fmt: skip
def test_what_is_won_without_the_profiler_is_an_estimate_with_its_range(by_cost, said):
    gain = Gain(100 * MS, 80 * MS, 0, unprofiled_ns=(60 * MS, 48 * MS), steps=2)
    unprofiled = {cost: (before * MS, after * MS) for cost, (before, after) in by_cost.items()}
    answer = Answer((Change("comm"),), gain, {}, {}, unprofiled_ns=unprofiled)
    assert answer.lines()[1] == f"without the profiler, an estimate: 60 ms → {said}"
