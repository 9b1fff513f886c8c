"""How sentences begin, and what stands before a figure."""

import re

_VOWEL = re.compile(r"8|1[18](,\d{3})*(?![\d,])")
"""Figures that are spoken with a vowel first: eight, eighty, eleven, eighteen thousand."""


def first_upper(words: str) -> str:
    """The words as the beginning of a sentence."""
    return words[0].upper() + words[1:]


def with_article(figure: str) -> str:
    """`a 64.9 ms`, `an 8.19 ms`, `an 11 ms`, `a 110 ms`."""
    return f"{'an' if _VOWEL.match(figure) else 'a'} {figure}"
