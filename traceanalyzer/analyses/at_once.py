"""Analyses on several cores: forks of this process make some of a large rank's tables, and some of a run's Results.

What is made is the same whoever makes it. A fork leaves out what fails: it fails again in this process, which notes it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from traceanalyzer.analyses.dependencies import parameters_of, reached_by
from traceanalyzer.analyses.registry import ANALYSES, SHARED
from traceanalyzer.forks import aside

_LONGEST = ("gaps", "what_ran", "host_events", "operator_shapes", "replay", "host_work", "idle")
"""Begun first, so that nobody waits for one of them at the end; no figure depends on it."""


def made_at_once(
    names: Iterable[str], table: Callable[[str], Any], held: Callable[[str], Any], processes: int
) -> dict[str, Any]:
    """Tables of these analyses that forks made; the others are made here meanwhile, where `table` keeps them.

    Args:
        names: analyses.
        table: makes an analysis' table, or what is shared, and keeps it in its process.
        held: what of an analysis this process has by now; `None` for nothing.
        processes: how many may work at it, this one among them.
    """
    needs = {name: _needs_of(name) for name in names if ANALYSES[name].per_rank is not None}
    free = _Queue(_longest_first(name for name, own in needs.items() if not own))
    bound = _Queue(_longest_first(name for name, own in needs.items() if own))
    before = processes // 2
    begun = [aside(partial(_taken, free, table, held), processes=processes) for _ in range(before)]
    for name in SHARED:
        if sum(name in own for own in needs.values()) > 1:
            with suppress(Exception):
                table(name)
    begun += [aside(partial(_taken, bound, table, held), processes=processes) for _ in range(processes - before - 1)]
    for queue in (bound, free):
        _taken(queue, table, held)
        queue.close()
    return {name: made for wait in begun for name, made in wait().items()}


def joined_at_once(names: Iterable[str], result: Callable[[str], Any], held: Callable[[str], Any]) -> dict[str, Any]:
    """Results that a fork made while this process replayed the job, which takes about as long as all others.

    Args:
        names: analyses.
        result: makes an analysis' Result, and keeps it in its process.
        held: what of an analysis this process has by now; `None` for nothing.
    """
    replayed = {"replay", *reached_by(["replay"])}
    # What copies events is made in a moment, and long to send.
    others = [name for name in names if name not in replayed and not ANALYSES[name].result.is_event_copy]
    begun = aside(partial(_made, others, result, held))
    _made([name for name in names if name in replayed], result, held)
    return {name: made for name, made in begun().items() if held(name) is None}


def _needs_of(name: str) -> set[str]:
    """What of one rank it needs, directly or not, besides the events."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        make = SHARED[one] if one in SHARED else ANALYSES[one].per_rank
        own = {p.name for p in (parameters_of(make) if make else ())} & {*ANALYSES, *SHARED}
        waiting += own - found
        found |= own
    return found


def _longest_first(names: Iterable[str]) -> list[str]:
    found = [*names]
    return [*(name for name in _LONGEST if name in found), *(name for name in found if name not in _LONGEST)]


def _taken(queue: "_Queue", table: Callable[[str], Any], held: Callable[[str], Any]) -> dict[str, Any]:
    """Make what nobody else has taken."""
    return _made(queue.rest(), table, held)


def _made(names: Iterable[str], make: Callable[[str], Any], held: Callable[[str], Any]) -> dict[str, Any]:
    """Those of the names that can be made."""
    tried = []
    for name in names:
        tried.append(name)
        with suppress(Exception):
            make(name)
    return {name: made for name in tried if (made := held(name)) is not None}


class _Queue:
    """Names of which each is given to one process alone, this one or a fork of it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._out, into = os.pipe()
        os.write(into, bytes(range(len(names))))
        os.close(into)

    def rest(self) -> Iterator[str]:
        """Those that are left."""
        while place := os.read(self._out, 1):
            yield self._names[place[0]]

    def close(self) -> None:
        """This process asks no more."""
        os.close(self._out)
