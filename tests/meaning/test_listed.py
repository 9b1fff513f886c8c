"""Several ranks, steps or names in a sentence."""

import pytest

from traceanalyzer.meaning.vocabulary import lacking, listed, numbered, part_of


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


@pytest.mark.parametrize(
    ("expected", "here", "text"),
    [
        (range(8), {0}, "1 to 7"),
        (range(4), {0, 3, 9}, "1 and 2"),
        (range(10**12), {1}, "0 and 2 to 999999999999"),
        ({2, 5, 7}, {5}, "2 and 7"),
    ],
)
def test_what_is_lacking_is_listed(expected, here, text):
    assert lacking(expected, here) == text


@pytest.mark.parametrize(
    ("count", "total", "text"),
    [(3, 17, "3 of 17 calls"), (1310, 1310, "All 1,310 calls"), (1, 17, "1 of 17 calls"), (1, 1, "The only call")],
)
def test_some_of_many_begin_a_sentence(count, total, text):
    assert part_of(count, total, "call") == text
