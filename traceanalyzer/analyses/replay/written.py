"""Changes as people write them: `rank 7=peers`, `host none`, `operator aten::mm=2x`."""

import re

from traceanalyzer.analyses.replay.change import EVEN, IDEAL, MAY_BE_NAMED, NAMED, PARTS, WORDS, Change, Changeable
from traceanalyzer.errors import UsageError
from traceanalyzer.meaning.number_lists import chosen

_FACTOR = re.compile(r"(\d+(?:\.\d+)?)x")

_RANKS = re.compile(r"[\d,\s-]+")

_WITHOUT_FACTOR = ("waits", "sync", "profiler")

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:\s*GB/s)?")

_IN_STEPS = re.compile(r" in steps? ([\d,\s-]+)$")


def read_change(text: str) -> Change:
    """The change that a text of a part and what becomes of it names: `host 0=peers`, `host 0=peers in steps 3,4`.

    Raises:
        UsageError: it names none.
    """
    text = text.strip()
    within = _IN_STEPS.search(text)
    steps = chosen(within[1]) if within else None
    part, _, rest = (text[: within.start()] if within else text).partition(" ")
    return change_of(part, rest.strip(), steps)


def change_of(name: str, text: str, steps: frozenset[int] | None = None) -> Change:
    """`WHAT`, `RANKS=WHAT` or `NAME=WHAT` of a part; `WHAT` is a word of the part or a factor of speed such as `2x`.

    Raises:
        UsageError: the part or the text is something else.
    """
    part: Changeable | None = next((one for one in PARTS if one == name), None)
    if part is None:
        raise UsageError(f"no part of a job is called {name!r}; there are {', '.join(PARTS)}")
    if part == "schedule":
        return Change(part, text.strip(), steps=steps)
    where, equals, what = text.rpartition("=")
    if part == "stage" and what.strip() in (EVEN, IDEAL) and not equals:
        return Change(part, what.strip(), steps=steps)
    if not equals and (part in NAMED or part in ("rank", "stage")):
        raise UsageError(f"{part} {text!r}: say which, such as {part} {'NAME=2x' if part in NAMED else '7=peers'}")
    is_named = part in NAMED or (part in MAY_BE_NAMED and bool(equals) and not _RANKS.fullmatch(where))
    return Change(
        part,
        _becomes(part, what.strip()),
        ranks=chosen(where) if equals and not is_named else None,
        steps=steps,
        name=where.strip() if is_named else None,
    )


def _becomes(part: Changeable, what: str) -> float | str:
    if part == "links":
        rate = _RATE.fullmatch(what)
        if not rate:
            raise UsageError(f"links cannot become {what!r}; write their bus bandwidth in GB/s, such as 400")
        return float(rate[1])
    factor = _FACTOR.fullmatch(what)
    if factor and float(factor[1]) > 0 and part not in _WITHOUT_FACTOR:
        return 1 / float(factor[1])
    if what not in WORDS[part]:
        words = [*WORDS[part], *(() if part in _WITHOUT_FACTOR else ("a factor of speed such as 2x",))]
        raise UsageError(f"{part} cannot become {what!r}; write {' or '.join(words)}")
    return WORDS[part][what]
