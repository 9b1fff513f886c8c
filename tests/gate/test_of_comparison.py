import pytest

from tests.diff.captured import capture, side, steady
from traceanalyzer.diff import compare
from traceanalyzer.errors import UsageError
from traceanalyzer.gate import FAILED, NOT_AVAILABLE, PASSED, SKIPPED, check_comparison, parse
from traceanalyzer.run_info import RunInfo


@pytest.fixture(scope="module")
def comparison():
    """A step of 20 ns (10 compute, 5 communication, 5 idle) becomes 22 (10, 8, 4)."""
    return compare([side("base", capture(steady(10, 5, 5))), side("other", capture(steady(10, 8, 4)))])


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("step_ns +9%", FAILED), ("step_ns +10%", PASSED), ("step_ns +11%", PASSED), ("step_ns +1ns", FAILED),
        ("step_ns +2ns", PASSED), ("step_us +0.001", FAILED), ("step_ns +9% @ any rank", FAILED), ("step_ns -1%", PASSED),
        ("idle_ns -10%", FAILED), ("idle_ns -20%", PASSED), ("idle_ns -0.5ns @ all ranks", FAILED),
        ("exposed_comm_pct +11pp", FAILED), ("exposed_comm_pct +12pp", PASSED), ("idle_pct -6pp @ max", FAILED),
        ("comm_calls +0%", PASSED), ("comm_calls +0", PASSED),
        ("nccl.total_ns +50%", FAILED), ("nccl.total_ns +60%", PASSED), ("kernels.calls[kind=comm] +0", PASSED),
        ("kernels.total_ns[kind=compute] +0ns", PASSED), ("nccl.max_ns +2ns", FAILED),
        ("step_ns > 21", FAILED), ("step_ns > 22", PASSED), ("nccl.calls > 1", PASSED), ("nccl.calls >= 1", FAILED),
    ],
)  # fmt: skip
def test_changes_and_limits(comparison, text, status):
    (outcome,) = check_comparison([parse(text)], comparison)
    assert outcome.status == status, outcome
    assert (outcome.run, bool(outcome.rows)) == ("other", status == FAILED)


@pytest.mark.parametrize(
    ("text", "status"),
    [("tokens_per_s -1%", NOT_AVAILABLE), ("tokens_per_s? -1%", SKIPPED), ("unprofiled_step_ms > 5", NOT_AVAILABLE)],
)
def test_a_figure_that_a_run_lacks_fails_unless_optional(comparison, text, status):
    assert check_comparison([parse(text)], comparison)[0].status == status


def test_figures_of_the_whole_run():
    runs = [
        side(name, capture(steady(10), info=RunInfo(tokens_per_s=rate)))
        for name, rate in (("base", 100.0), ("other", 90.0))
    ]
    assert check_comparison([parse("tokens_per_s -5%")], compare(runs))[0].status == FAILED
    assert check_comparison([parse("tokens_per_s -10%")], compare(runs))[0].status == PASSED


def test_new_communication_is_growth_from_nothing():
    made = compare([side("base", capture(steady(10))), side("other", capture(steady(10, 5)))], force=True)
    for text in ("nccl.calls +0%", "nccl.calls[collective=all_reduce] +0", "comm_ns +5%"):
        assert FAILED in {outcome.status for outcome in check_comparison([parse(text)], made)}, text


def test_a_run_with_itself_passes_every_gate():
    run = capture(steady(10, 5, 5))
    made = compare([side("base", run), side("other", run)])
    texts = [
        f"{name} {sign}0{unit}"
        for name in ("step_ns", "comm_calls", "kernels.total_ns")
        for sign in "+-"
        for unit in ["%"]
    ]
    texts += ["idle_pct +0pp @ any rank", "overlap_pct -0pp @ all ranks", "nccl.calls +0 @ any rank"]
    assert {outcome.status for outcome in check_comparison([parse(text) for text in texts], made)} == {PASSED}


def test_a_rank_that_one_run_lacks_cannot_be_compared():
    one, two = steady(10, 5, 5), steady(10, 5, 5)[:1]
    made = compare([side("base", capture(one)), side("other", capture(two))])
    assert check_comparison([parse("step_ns +3% @ any rank")], made)[0].status == NOT_AVAILABLE


@pytest.mark.parametrize(
    ("text", "message"), [("nonsense +3%", "no table has a column nonsense"), ("headline.basis +3", "no number")]
)
def test_a_name_that_is_none(comparison, text, message):
    with pytest.raises(UsageError, match=message):
        check_comparison([parse(text)], comparison)
