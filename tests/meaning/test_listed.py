"""Several ranks, steps or names in a sentence."""

import pytest

from traceanalyzer.meaning.listed import listed, numbered


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([3], "3"),
        ([3, 5], "3 and 5"),
        ([3, 4], "3 and 4"),
        (range(8, 16), "8 to 15"),
        ([0, 1, 2, 3, 8, 12, 13, 14], "0 to 3, 8 and 12 to 14"),
        (range(0, 64, 2), "0, 2, 4 … 62"),
        ([n * n for n in range(20)], "0, 1, 4, 9, 16, 25, 36, 49 and 12 more"),
    ],
)
def test_many_numbers_are_listed_shortly(numbers, text):
    assert listed(numbers) == text


@pytest.mark.parametrize(
    ("numbers", "most", "text"),
    [
        ([3], 8, "rank 3"),
        ([7, 0, 1, 2], 8, "ranks 0 to 2 and 7"),
        ([1, 5, 8, 20], 2, "ranks 1, 5 and 2 more"),
        ([], 8, "ranks none"),
    ],
)
def test_numbers_are_named_with_what_they_are(numbers, most, text):
    assert numbered("rank", numbers, most) == text
