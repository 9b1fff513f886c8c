"""What stands before a figure."""

import pytest

from traceanalyzer.meaning.vocabulary import with_article


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        ("64.9 ms", "a 64.9 ms"),
        ("8.19 ms", "an 8.19 ms"),
        ("85 ms", "an 85 ms"),
        ("800 µs", "an 800 µs"),
        ("11 ms", "an 11 ms"),
        ("11.2 ms", "an 11.2 ms"),
        ("18.4 s", "an 18.4 s"),
        ("11,000 s", "an 11,000 s"),
        ("110 ms", "a 110 ms"),
        ("1.8 ms", "a 1.8 ms"),
        ("1,800 s", "a 1,800 s"),
        ("180 ms", "a 180 ms"),
    ],
)
def test_a_figure_has_the_article_that_is_spoken(figure, said):
    assert with_article(figure) == said
