"""Analyses on several cores: forks of this process make some of a large rank's tables, and some of a run's Results.

What is made is the same whoever makes it. A fork leaves out what fails: it fails again in this process, which notes it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from traceanalyzer.analyses.dependencies import parameters_of
from traceanalyzer.analyses.registry import ANALYSES, SHARED
from traceanalyzer.forks import Shared, aside

_LONGEST = (
    *("gaps", "what_ran", "host_events", "operator_shapes", "replay", "host_work", "idle"),
    *("what_ifs", "critical_path"),
)
"""Begun first, so that nobody waits for one of them at the end; no figure depends on it."""

_MOST, _MOST_OF_FREE = 10, 4
"""Processes that find enough to do, the longest chain of analyses taking a fifth of the time of all; and those of them
that begin with what needs nothing but events."""


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
    makers = {name: ANALYSES[name].per_rank for name in ANALYSES} | {**SHARED}
    needs = {name: _needs_of(name, makers) for name in names if makers[name] is not None}
    shared = [name for name in SHARED if sum(name in own for own in needs.values()) > 1]
    return _at_once(needs, shared, table, held, processes)


def joined_at_once(
    names: Iterable[str], result: Callable[[str], Any], held: Callable[[str], Any], processes: int
) -> dict[str, Any]:
    """Results that forks made while this process replayed the job, which takes about as long as most others.

    Args:
        names: analyses.
        result: makes an analysis' Result, and keeps it in its process.
        held: what of an analysis this process has by now; `None` for nothing.
        processes: how many may work at it, this one among them.
    """
    makers = {name: ANALYSES[name].across for name in ANALYSES}
    # What copies events is made in a moment, and long to send; the replay holds the graph of the job.
    sent = [name for name in names if name != _REPLAY and not ANALYSES[name].result.is_event_copy]
    return _at_once({name: _needs_of(name, makers) for name in sent}, [_REPLAY], result, held, processes)


_REPLAY = "replay"


def _at_once(
    needs: Mapping[str, set[str]],
    first: Sequence[str],
    make: Callable[[str], Any],
    held: Callable[[str], Any],
    processes: int,
) -> dict[str, Any]:
    """What forks made of the names that need this and that; this process makes `first` what many need, then helps."""
    processes = min(processes, _MOST)
    free = Shared(_longest_first(name for name, own in needs.items() if own.isdisjoint(first)))
    bound = [name for name, own in needs.items() if not own.isdisjoint(first)]
    ahead = min(processes // 2, _MOST_OF_FREE)
    begun = [aside(partial(_taken, free, make, held), processes=processes) for _ in range(ahead)]
    left = processes - 1 - len(begun)
    missing = _by_who_waits(first, needs)
    for name in [*missing]:
        with suppress(Exception):
            make(name)
        missing.remove(name)
        for long in _LONGEST:
            if left and long in bound and needs[long].isdisjoint(missing):
                own = [one for one in bound if one == long or one in needs[long] or long in needs[one]]
                begun.append(aside(partial(_made, own, make, held), processes=processes))
                bound = [one for one in bound if one not in own]
                left -= 1
    rest = Shared(_longest_first(bound))
    begun += [aside(partial(_taken, rest, make, held), processes=processes) for _ in range(left)]
    for queue in (rest, free):
        _taken(queue, make, held)
        queue.close()
    return {name: made for wait in begun for name, made in wait().items() if held(name) is None}


def _by_who_waits(first: Iterable[str], needs: Mapping[str, set[str]]) -> list[str]:
    """What the longest needs comes first."""
    waiting = [needs[name] for name in _LONGEST if name in needs]
    return sorted(first, key=lambda name: next((at for at, own in enumerate(waiting) if name in own), len(waiting)))


def _needs_of(name: str, makers: Mapping[str, Callable[..., Any] | None]) -> set[str]:
    """What it needs of what these make, directly or not."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        make = makers[waiting.pop()]
        own = {p.name for p in (parameters_of(make) if make else ()) if p.default is p.empty} & {*makers}
        waiting += own - found
        found |= own
    return found


def _longest_first(names: Iterable[str]) -> list[str]:
    found = [*names]
    return [*(name for name in _LONGEST if name in found), *(name for name in found if name not in _LONGEST)]


def _taken(queue: Shared[str], table: Callable[[str], Any], held: Callable[[str], Any]) -> dict[str, Any]:
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
