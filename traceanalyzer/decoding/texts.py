"""What arguments say, as the tables write it."""

import re


def first_of(*values: int | None) -> int | None:
    """The first that is known."""
    return next((value for value in values if value is not None), None)


def extent(sizes: str) -> str:
    """`[24, 1, 1]` as `24x1x1`."""
    return "x".join(re.findall(r"\d+", sizes))


def as_list(text: str | None) -> str | None:
    """`[0, 1]` as `0,1`; an empty list is absent."""
    return text.strip("[] ").replace(" ", "") or None if text else None


def number_in(text: str | int) -> int:
    """The number in `stream 7` or `thread 12 (python)`, as old traces write them; -1 where there is none."""
    digits = re.search(r"\d{1,18}", str(text))
    return int(digits[0]) if digits else -1
