"""Analyses on several cores: forks of this process make some of a large rank's tables, and some of a run's Results.

What is made is the same whoever makes it. A fork leaves out what fails: it fails again in this process, which notes it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from traceanalyzer.analyses.dependencies import RANK_MAKERS, RESULT_MAKERS, needs_of
from traceanalyzer.analyses.registry import ANALYSES, SHARED
from traceanalyzer.forks import Shared, all_aside, aside, shared_among

Bundle = tuple[str, ...]
"""Analyses that one process makes."""

LONGEST = (
    *("doings", "parts_of_steps", "gaps", "host_events", "operator_shapes", "replay", "host_work", "idle"),
    *("what_ifs", "critical_path"),
)
"""Begun first, so that nobody waits for one of them at the end; no figure depends on it."""

_MOST, _MOST_OF_FREE = 10, 4
"""Processes that find enough to do, the longest chain of analyses taking a fifth of the time of all; and those of them
that begin with what needs nothing but events."""


def made_at_once(
    names: Iterable[str], table: Callable[[str], Any], held: Callable[[str], Any], processes: int
) -> dict[str, Any]:
    """Tables of these analyses that forks made; others are made here meanwhile, where `table` keeps them.

    So is what is shared, but for what is long and needed by one analysis alone: a fork makes that, and the analysis is
    left to whoever asks for it.

    Args:
        names: analyses.
        table: makes an analysis' table, or what is shared, and keeps it in its process.
        held: what of an analysis this process has by now; `None` for nothing.
        processes: how many may work at it, this one among them.
    """
    wanted = {name: needs_of(name, RANK_MAKERS) for name in names if RANK_MAKERS[name] is not None}
    apart = {name for own in wanted.values() for name in own if name in SHARED and name in LONGEST}
    needs = {name: own for name, own in wanted.items() if own.isdisjoint(apart)}
    needs |= {name: needs_of(name, RANK_MAKERS) | {name} for name in apart}
    shared = [name for name in SHARED if sum(name in own for own in needs.values()) > 1]
    first = [
        name
        for name in shared
        if name not in apart and any(name in own for long, own in needs.items() if long in LONGEST)
    ]
    return _at_once(_together(needs, {*shared} - {*first}), first, table, held, processes)


def joined_at_once(
    names: Iterable[str], result: Callable[[str], Any], held: Callable[[str], Any], processes: int
) -> dict[str, Any]:
    """Results that forks made while this process replayed the job, without changes and with the standard ones.

    Args:
        names: analyses.
        result: makes an analysis' Result, and keeps it in its process.
        held: what of an analysis this process has by now; `None` for nothing.
        processes: how many may work at it, this one among them.
    """
    # What copies events is made in a moment, and long to send; the replay holds the graph of the job.
    first = [_REPLAY, *(name for name in names if name == _WHAT_IFS)]
    sent = [name for name in names if name not in first and not ANALYSES[name].result.is_event_copy]
    return _at_once({(name,): needs_of(name, RESULT_MAKERS) for name in sent}, first, result, held, processes)


_REPLAY, _WHAT_IFS = "replay", "what_ifs"
"""Rules ask the graph that this process holds for the same changes again."""


def _together(needs: Mapping[str, set[str]], shared: set[str]) -> dict[Bundle, set[str]]:
    """The names in bundles with all that these need: one process makes all that need the same of what is shared."""
    bundles: dict[Bundle, set[str]] = {}
    for name, own in needs.items():
        same = [bundle for bundle, theirs in bundles.items() if own & theirs & shared]
        joined = own.union(*(bundles.pop(bundle) for bundle in same))
        bundles[*(one for bundle in same for one in bundle), name] = joined
    return bundles


def _at_once(
    needs: Mapping[Bundle, set[str]],
    first: Sequence[str],
    make: Callable[[str], Any],
    held: Callable[[str], Any],
    processes: int,
) -> dict[str, Any]:
    """What forks made of bundles that need this and that; this process makes `first` what many need, then helps."""
    processes = min(processes, _MOST)
    free = Shared(_longest_first(bundle for bundle, own in needs.items() if own.isdisjoint(first)))
    bound = [bundle for bundle, own in needs.items() if not own.isdisjoint(first)]
    ahead = min(processes // 2, _MOST_OF_FREE)
    begun = all_aside([partial(_taken, free, make, held)] * ahead, processes=processes)
    left = processes - 1 - len(begun)
    missing = _by_who_waits(first, needs)
    for name in [*missing]:
        with suppress(Exception), shared_among(1 + left):
            make(name)
        missing.remove(name)
        for bundle in [bundle for bundle in bound if _is_long(bundle) and needs[bundle].isdisjoint(missing)][:left]:
            begun.append(aside(partial(_made, bundle, make, held), processes=processes))
            bound.remove(bundle)
            left -= 1
    rest = Shared(_longest_first(bound))
    begun += all_aside([partial(_taken, rest, make, held)] * left, processes=processes)
    for queue in (rest, free):
        _taken(queue, make, held)
        queue.close()
    return {name: made for wait in begun for name, made in wait().items() if held(name) is None}


def _by_who_waits(first: Iterable[str], needs: Mapping[Bundle, set[str]]) -> list[str]:
    """What the longest needs comes first."""
    waiting = [needs[bundle] for bundle in _longest_first(needs) if _is_long(bundle)]
    return sorted(first, key=lambda name: next((at for at, own in enumerate(waiting) if name in own), len(waiting)))


def _longest_first(bundles: Iterable[Bundle]) -> list[Bundle]:
    return sorted(bundles, key=lambda bundle: min(map(_place, bundle)))


def _is_long(bundle: Bundle) -> bool:
    return any(name in LONGEST for name in bundle)


def _place(name: str) -> int:
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def _taken(queue: Shared[Bundle], make: Callable[[str], Any], held: Callable[[str], Any]) -> dict[str, Any]:
    """Make what nobody else has taken."""
    return _made((name for bundle in queue.rest() for name in bundle), make, held)


def _made(names: Iterable[str], make: Callable[[str], Any], held: Callable[[str], Any]) -> dict[str, Any]:
    """Those of the names that can be made."""
    tried = []
    for name in names:
        tried.append(name)
        with suppress(Exception):
            make(name)
    return {name: made for name in tried if (made := held(name)) is not None}
