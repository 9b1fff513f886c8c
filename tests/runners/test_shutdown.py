"""A rank that makes no progress ends itself, by an exception that lets its files be written."""

import signal
import time

import pytest

pytest.importorskip("torch")

from traceanalyzer.runners.world import Stuck, expect_progress, uninterrupted, unwinding_on_signals


@pytest.fixture
def one_second():
    """So long an alarm's timeout can be at least."""
    yield 1
    assert signal.alarm(0) == 0


def test_a_rank_without_progress_is_stuck(one_second):
    with unwinding_on_signals():
        expect_progress(one_second)
        with pytest.raises(Stuck, match="no step was finished"):
            time.sleep(10)


def test_progress_puts_the_end_off():
    with unwinding_on_signals():
        expect_progress(60)
        signal.setitimer(signal.ITIMER_REAL, 20)  # as if 40 seconds had passed
        expect_progress(60)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 20


def test_writing_a_trace_may_take_longer(one_second):
    with unwinding_on_signals():
        expect_progress(one_second)
        with uninterrupted():
            time.sleep(1.3)


def test_nothing_is_armed_where_nothing_would_unwind(one_second):
    expect_progress(one_second)
    assert signal.alarm(0) == 0
