"""Where one event of a trace's text ends and the next begins, without parsing it."""

import re
from collections.abc import Iterator

# A whole string (so that braces in names do not count), or a brace.
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)

NEXT_OBJECT = re.compile(rb',\s*(?=\{\s*")')

_REACH = 1 << 11
"""Of a text's end, where its last event mostly begins; all that lies in it is cut to find the last cut."""

_PHASE = re.compile(rb'"ph"\s*:\s*"')


def end_of_object(text: bytes, start: int, limit: int | None = None) -> int:
    """Position after the `}` that closes the first object at or after `start`; 0 when it is not closed."""
    limit = len(text) if limit is None else limit
    position = text.find(b"{", start, limit)
    depth = 0
    while position >= 0 and (match := _STRUCTURE.search(text, position, limit)):
        position = match.end()
        depth += {b"{": 1, b"}": -1}.get(match[0], 0)
        if depth == 0:
            return position
    return 0


def last_cut(text: bytes, limit: int | None = None) -> tuple[int, int] | None:
    """Where the text can be cut last: end of the events before, start of the last event; `None` for nowhere."""
    limit, reach = len(text) if limit is None else limit, _REACH
    while True:
        begin = max(0, limit - reach)
        cuts = list(_cuts(text, begin, limit))
        if cuts or not begin:
            return cuts[-1] if cuts else None
        reach *= 8


def has_phase(text: bytes) -> bool:
    """Whether an event's phase lies in the text."""
    return _PHASE.search(text) is not None


def cut_near(text: bytes, position: int) -> tuple[int, int] | None:
    """The first cut from `position` on, else the last one before it."""
    return next(_cuts(text, position, len(text)), None) or last_cut(text, position)


def _cuts(text: bytes, begin: int, limit: int) -> Iterator[tuple[int, int]]:
    """Between two events: an event has a phase of its own, which an object in an event's arguments has not."""
    for phase in _PHASE.finditer(text, begin, limit):
        for match in NEXT_OBJECT.finditer(text, begin, phase.start() + 1):  # the phase may be the first key
            if not end_of_object(text, match.end(), phase.start()):
                yield match.span()
                break
        begin = phase.end()
