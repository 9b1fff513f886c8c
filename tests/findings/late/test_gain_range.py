"""How far a gain is known is said: its range without the profiler, or why it is a bound."""

from types import SimpleNamespace

import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.replay import TOO_LARGE, gain_of
from traceanalyzer.findings.late.gain_range import how_far

MS, US = 1_000_000, 1_000


@pytest.fixture(scope="module")
def replay():
    """A host that launches a kernel every 2 ms, with three hundred operators recorded between."""
    begins = [number * 2 * MS for number in range(4)]
    ops = [("gemm", begin + 10 * US, begin + 60 * US, number) for number, begin in enumerate(begins, 1)]
    calls = [("cudaLaunchKernel", begin, begin + 5 * US) for begin in begins]
    written = [("aten::view", begin + 6 * US * place, begin + 6 * US * place + 3 * US)
               for begin in begins for place in range(2, 302)]  # fmt: skip
    return run([host_trace(ops, calls, host_ops=written)], ["replay"])["replay"]


def row_of(replay, **more):
    gain = gain_of(replay, Change("host"))
    return {"gain_ns": gain.gain_ns, "unprofiled_gain_ns": gain.unprofiled_gain_ns, "gain_is_bound": False,
            "step_ns": gain.before_ns, "what_if": "host none", **more}  # fmt: skip


def test_a_gain_that_recording_changes_has_its_range(replay):
    said = how_far(row_of(replay), replay)
    # 903 operators and calls between the first launch and the last, of 1 and 6 µs.
    assert said == "Without the profiler the gain is 428 µs to 4.94 ms, by what recording may take the hosts."


def test_of_one_that_other_changes_gave_nothing_is_said(replay):
    assert how_far(row_of(replay, what_if="host 2x"), replay) == ""
    assert "what-if" in how_far(row_of(replay, what_if=None), replay)


def test_a_forecast_that_recording_does_not_change_needs_no_range(replay):
    assert how_far(row_of(replay, unprofiled_gain_ns=row_of(replay)["gain_ns"]), replay) == ""


def test_without_a_replay_it_is_said_why(replay):
    without = type(replay)(replay.table, why_not=TOO_LARGE)
    assert how_far(row_of(replay, gain_is_bound=True), without) == f"It is not replayed: {TOO_LARGE}."


def test_what_is_not_explained_is_of_the_capture_where_no_step_is_complete(replay):
    engine = SimpleNamespace(before_ns=MS, error_ns=MS // 10, unmatched_ns=0, windows=SimpleNamespace(steps=None))
    of_capture = SimpleNamespace(engine=engine, why_not="")
    said = how_far(row_of(replay, gain_is_bound=True), of_capture)
    assert said == "It is a bound because 100 µs of the capture are not explained by the graph."
