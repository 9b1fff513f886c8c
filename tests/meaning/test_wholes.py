"""What figures are of: no step is a mean where one alone is complete."""

import pytest

from traceanalyzer.meaning.vocabulary import rate, step_or_capture, whole, within_whole


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (None, ("the capture", "the capture", "in all", "")),
        (1, ("the step", "the step", "in the step", "")),
        (2, ("a mean step", "a step", "a step", " a step")),
    ],
)
def test_one_step_is_neither_a_mean_nor_a_rate(steps, words):
    assert (whole(steps), step_or_capture(steps), within_whole(steps), rate(steps)) == words
