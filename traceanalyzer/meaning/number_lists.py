"""Lists of ranks and of steps in text: as traces and tables have them, and as people write them."""

import re

from traceanalyzer.errors import UsageError

_LIST = re.compile(r"\s*\d{1,18}\s*(?:,\s*\d{1,18}\s*)*")

_MOST = 1_000_000
"""Above all numbers of a job; a range of more would fill the memory."""


def numbers(text: object) -> tuple[int, ...]:
    """Those of a list such as `0,4,8`, in its order; none where it is cut short (`0, 1, ..., 1023`), or no list."""
    is_list = isinstance(text, str) and _LIST.fullmatch(text)
    return tuple(int(part) for part in str(text).split(",")) if is_list else ()


def chosen(text: str, option: str = "") -> frozenset[int]:
    """`0,2-3` as a set; `option` is what somebody gave it to.

    Raises:
        UsageError: the text is something else.
    """
    found: set[int] = set()
    said = f"{option} {text!r}".strip()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match:
            raise UsageError(f"{said}: write numbers and ranges such as 0,2-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise UsageError(f"{said}: {first}-{last} is reversed; write {last}-{first}")
        if last >= _MOST:
            raise UsageError(f"{said}: numbers go up to {_MOST - 1:,}")
        found.update(range(first, last + 1))
    return frozenset(found)
