"""What each analysis needs, by the names of its parameters, and what is reached by something that is wrong."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from traceanalyzer.analyses.integrity.integrity_checks import EVENTS
from traceanalyzer.analyses.registry import ANALYSES, SHARED
from traceanalyzer.model.schema import TABLES

_OF_WHAT_IS_WRONG = ("integrity", "ranks")
"""They say what is here and what is wrong with it: nothing makes that unreliable, nor what takes a name from there."""


Makers = Mapping[str, Callable[..., Any] | None]
"""What makes each part, by name; its parameters name parts."""

RANK_MAKERS: Makers = {name: ANALYSES[name].per_rank for name in ANALYSES} | {**SHARED}
"""Of one rank's tables, and of what they share."""

RESULT_MAKERS: Makers = {name: ANALYSES[name].across for name in ANALYSES}
"""Of all ranks' Results."""


def needs_of(name: str, makers: Makers) -> set[str]:
    """What a part needs of what these make, directly or not."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        make = makers[waiting.pop()]
        own = {p.name for p in (parameters_of(make) if make else ()) if p.default is p.empty} & {*makers}
        waiting += own - found
        found |= own
    return found


def with_last_uses(names: Iterable[str]) -> list[tuple[str, frozenset[str]]]:
    """Analyses of one rank's events, and what is shared that nobody needs after each: what is large is not held long.

    Those that share the same follow each other; in the order of `SHARED`, that of which others are made goes last.
    """
    places = {name: place for place, name in enumerate(SHARED)}
    shared = {name: needs_of(name, RANK_MAKERS) & {*SHARED} for name in names}
    order = sorted(shared, key=lambda name: sorted((places[one] for one in shared[name]), reverse=True))
    left: set[str] = set()
    found: list[tuple[str, frozenset[str]]] = []
    for name in reversed(order):
        found.append((name, frozenset(shared[name] - left)))
        left |= shared[name]
    return found[::-1]


@cache
def _names_of(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(one.name for one in parameters_of(function))


class Parameter(NamedTuple):
    """A function's, as `inspect.Parameter`: to ask for that takes ten times as long, for two hundred functions."""

    name: str
    default: Any
    annotation: Any
    empty: Any = inspect.Parameter.empty


@cache
def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Those after the first."""
    plain: Any = inspect.unwrap(getattr(function, "__func__", function))
    code, given = plain.__code__, plain.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    held = dict(zip(names[code.co_argcount - len(given) : code.co_argcount], given, strict=True))
    held |= plain.__kwdefaults__ or {}
    first = 2 if inspect.ismethod(function) else 1  # a class's method has the class first
    return tuple(
        Parameter(name, held.get(name, inspect.Parameter.empty), plain.__annotations__.get(name))
        for name in names[first:]
    )


def with_needed(names: Iterable[str]) -> list[str]:
    """The analyses and all that they need, directly or not."""
    found: list[str] = []
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            waiting += [one for one in _named_by(name) if one in ANALYSES]
    return found


def reached_by(names: Iterable[str]) -> tuple[str, ...]:
    """Analyses whose figures rest on any of these, directly or not, in the registry's order.

    Args:
        names: analyses, what they share, event tables, or `EVENTS` for all of these.
    """
    wanted = {*names}
    return tuple(name for name in ANALYSES if name not in _OF_WHAT_IS_WRONG and wanted & _rests_on(name))


def _rests_on(name: str) -> set[str]:
    """An analysis, or what is shared, with all of both, and of event tables, that it is made from."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in found and one not in _OF_WHAT_IS_WRONG:
            found.add(one)
            waiting += [*_named_by(one), *_tables_of(one)]
    return found


def _named_by(name: str) -> list[str]:
    """What it takes by name: thresholds have defaults, needs have none."""
    if name in ANALYSES:
        functions = [ANALYSES[name].across, *filter(None, [ANALYSES[name].per_rank])]
    else:
        functions = [SHARED[name]] if name in SHARED else []
    return [one for function in functions for one in _names_of(function) if one in ANALYSES or one in SHARED]


def _tables_of(name: str) -> tuple[str, ...]:
    """The event tables that it is made of; without a list of them it may be any."""
    analysis = ANALYSES.get(name)
    return () if analysis is None or analysis.per_rank is None else (EVENTS, *(analysis.of or TABLES))
