from dataclasses import replace
from functools import cache

import pandas as pd
import pytest

from tests.diff.captured import capture, side, steady
from traceanalyzer.diff import compare
from traceanalyzer.gate import (
    FAILED,
    INCONCLUSIVE,
    PASSED,
    SKIPPED,
    UNKNOWN,
    check_comparison,
    gravest,
    parse,
)
from traceanalyzer.job.run_info import RunInfo


@pytest.fixture(scope="module")
def comparison():
    """A step of 20 ns (10 compute, 5 communication, 5 idle) becomes 22 (10, 8, 4)."""
    return compare([side("base", capture(steady(10, 5, 5))), side("other", capture(steady(10, 8, 4)))])


@pytest.mark.parametrize(
    ("text", "in_doubt"),
    [
        ("step_ns +50%", True),
        ("idle_pct > 90", True),
        ("kernels.calls[kind=comm] +9", True),
        ("tokens_per_s -1%", False),
    ],
)
@pytest.mark.parametrize("doubtful", ["base", "other"])
def test_a_figure_that_a_run_doubts_cannot_be_judged(text, in_doubt, doubtful):
    row = {
        "rank": 0,
        "check": "x",
        "severity": "medium",
        "count": 1,
        "sentence": "Events are lost.",
        "affects": "events",
    }
    made = [capture(steady(10, 5, 5), info=RunInfo(tokens_per_s=9.0)) for _ in range(2)]
    sides = [
        side(label, replace(one, tables={**one.tables, "integrity": pd.DataFrame([row])}) if label == doubtful else one)
        for label, one in zip(("base", "other"), made, strict=True)
    ]
    (outcome,) = check_comparison([parse(text)], compare(sides))
    is_seen = in_doubt and (doubtful == "other" or "%" in text or "+" in text)
    assert outcome.status == (UNKNOWN if is_seen else PASSED)
    assert (f"{doubtful}: Rank 0: Events are lost." in outcome.message) == is_seen


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
    ("text", "message"),
    [
        ("step_ns +3%", "step_ns changed by +10% (20 ns → 22 ns, limit +3%)"),
        ("step_ns +3% @ any rank", "step_ns changed by +10% at worst (limit +3%), violated by 2 of 2"),
        ("exposed_comm_pct +2pp", "exposed_comm_pct changed by +11.36 pp (25% → 36.4%, limit +2 pp)"),
        ("nccl.calls >= 1", "nccl.calls (all_reduce) is 1 (must be below 1)"),
    ],
)  # fmt: skip
def test_a_message_has_the_change_and_the_limit(comparison, text, message):
    assert check_comparison([parse(text)], comparison)[0].message == message


@pytest.mark.parametrize(
    ("text", "status"),
    [("tokens_per_s -1%", UNKNOWN), ("tokens_per_s? -1%", SKIPPED), ("unprofiled_step_ms > 5", UNKNOWN)],
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
        assert gravest(check_comparison([parse(text)], made)) != PASSED, text


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
    assert check_comparison([parse("step_ns +3% @ any rank")], made)[0].status == UNKNOWN


def repeats(label, *lengths):
    """Captures of one run whose steps last so long."""
    return side(label, *(once(label, length) for length in lengths))


@cache
def once(label, length):
    return capture(steady(length, ranks=1), label)


@pytest.mark.parametrize(
    ("base", "other", "text", "status"),
    [
        ((1000,), (1200,), "step_ns +3% significant", INCONCLUSIVE),
        pytest.param((1000, 1001), (1200,), "step_ns +3% significant", INCONCLUSIVE, marks=pytest.mark.thorough),
        ((1000,), (1000,), "step_ns +3% significant", PASSED),  # no difference is no regression
        ((900, 1000, 1100), (900, 1000, 1100), "step_ns +3% significant", PASSED),
        pytest.param((1000,), (1001,), "step_ns +3% significant", INCONCLUSIVE, marks=pytest.mark.thorough),
        ((1000, 1001, 1002), (1050, 1051, 1052), "step_ns +3% significant", FAILED),
        ((1000, 1001, 1002), (1010, 1011, 1012), "step_ns +3% significant", PASSED),
        ((900, 1000, 1100), (950, 1050, 1150), "step_ns +3% significant", INCONCLUSIVE),  # 5% more, noise 23%
        ((900, 1000, 1100), (910, 1000, 1090), "step_ns +3% significant", INCONCLUSIVE),  # the noise may hide it
        ((990, 1000, 1010), (900, 910, 920), "step_ns +1% significant", PASSED),  # far on the other side
        pytest.param((1000, 1001, 1002), (950, 951, 952), "step_ns -3% significant", FAILED, marks=pytest.mark.thorough),
        ((1000, 1000), (1030, 1030), "step_ns +3% significant", PASSED),
        ((1000, 1000), (1031, 1031), "step_ns +3% significant", FAILED),
        ((1000, 1001, 1002), (1050, 1051, 1052), "step_ns +30ns significant @ any rank", FAILED),
        ((900, 1000, 1100), (950, 1050, 1150), "step_ns +3% significant @ all ranks", INCONCLUSIVE),
        # Far on the other side of the limit noise hides nothing: ± 22.7% about +30%.
        ((900, 1000, 1100), (1200, 1300, 1400), "step_ns -3% significant", PASSED),
        ((900, 1000, 1100), (950, 1050, 1150), "step_ns +3%", FAILED),  # without the word: the means decide
        ((900, 1000, 1100), (950, 1050, 1150), "kernels.total_ns +3% significant", INCONCLUSIVE),
    ],
)  # fmt: skip
def test_significance(base, other, text, status):
    made = compare([repeats("base", *base), repeats("other", *other)])
    (outcome,) = check_comparison([parse(text)], made)
    assert outcome.status == status, outcome
    assert gravest([outcome]) == status


def test_ranks_that_are_missing_pass_nothing():
    whole, part = (steady(10, 5, 5, ranks=2)[:count] for count in (2, 1))
    made = compare([side("base", capture(part)), side("other", capture(part))])
    (outcome,) = check_comparison([parse("step_ns +3%")], made)
    assert (outcome.status, "base: 1 of 2 ranks is missing (1)" in outcome.message) == (UNKNOWN, True)
    assert check_comparison([parse("step_ns +3%")], made, wanted={0})[0].status == PASSED
    made = compare([side("base", capture(whole)), side("other", capture(part))])
    assert check_comparison([parse("step_ns > 5")], made)[0].status == FAILED  # what is here is too much already


def test_a_repeat_that_does_not_tell_passes_nothing():
    told = [capture(steady(10), info=RunInfo(tokens_per_s=100.0)), capture(steady(10))]
    made = compare([side("base", *told), side("other", *told)])
    assert check_comparison([parse("tokens_per_s -5%")], made)[0].status == UNKNOWN
    assert check_comparison([parse("tokens_per_s? -5%")], made)[0].status == PASSED
