"""How analyses are run: each once, on one rank's events, then over all ranks' small tables."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.registry import ANALYSES, SHARED
from traceanalyzer.errors import UsageError
from traceanalyzer.model import RankTrace

Parts = Mapping[str, pd.DataFrame]
"""One rank's small tables, by analysis."""


def run(ranks: Iterable[RankTrace], names: Iterable[str] = ANALYSES, **options: Any) -> dict[str, Result]:
    """The named analyses of some ranks in this process; `options` are thresholds, by parameter name.

    Raises:
        UsageError: an option is no threshold of these analyses.
    """
    wanted = tuple(names)
    known = thresholds_of(wanted)
    unknown = [name for name in options if name not in known]
    if unknown:
        there_are = f"there are {', '.join(known)}" if known else f"{', '.join(wanted)} has none"
        raise UsageError(f"no threshold is called {unknown[0]!r}; {there_are}")
    parts = {trace.rank: reduce_rank(trace, wanted, **options) for trace in ranks}
    return combine(parts, wanted, **options)


def thresholds_of(names: Iterable[str]) -> dict[str, Any]:
    """Thresholds of the named analyses and of all that they need, by parameter name, with their defaults."""
    parameters = [
        parameter
        for name in _with_needed(names)
        for function in (ANALYSES[name].across, ANALYSES[name].per_rank)
        if function is not None
        for parameter in _parameters(function)
    ]
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def reduce_rank(trace: RankTrace, names: Iterable[str] = ANALYSES, **options: Any) -> dict[str, pd.DataFrame]:
    """One rank's small tables: all that analyses need of its events."""
    done: dict[str, pd.DataFrame] = {}
    shared: dict[str, Any] = {}

    def table(name: str) -> Any:
        if name in SHARED:
            if name not in shared:
                shared[name] = SHARED[name](trace, **_needed(SHARED[name], table, options))
            return shared[name]
        per_rank = ANALYSES[name].per_rank
        if name not in done and per_rank is not None:
            done[name] = per_rank(trace, **_needed(per_rank, table, options))
        return done[name]

    for name in _with_needed(names):
        if ANALYSES[name].per_rank is not None:
            table(name)
    return done


def combine(parts: Mapping[int, Parts], names: Iterable[str] = ANALYSES, **options: Any) -> dict[str, Result]:
    """Results from all ranks' small tables; each is computed once."""
    done: dict[str, Result] = {}

    def result(name: str) -> Result:
        if name not in done:
            own = {rank: tables[name] for rank, tables in parts.items() if name in tables}
            across = ANALYSES[name].across
            done[name] = across(own, **_needed(across, result, options))
        return done[name]

    return {name: result(name) for name in names}


def _needed(function: Callable[..., Any], source: Callable[[str], Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments after the first: tables or Results by name, and options where they are given."""
    parameters = _parameters(function)
    given = {p.name: options[p.name] for p in parameters if p.name in options}
    wanted = [p.name for p in parameters if p.default is p.empty and (p.name in ANALYSES or p.name in SHARED)]
    return given | {name: source(name) for name in wanted}


def _with_needed(names: Iterable[str]) -> list[str]:
    """The names and all that they need, directly or not."""
    found: list[str] = []
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        found.append(name)
        for function in (ANALYSES[name].across, ANALYSES[name].per_rank):
            if function is not None:
                waiting += [p.name for p in _parameters(function) if p.name in ANALYSES]
    return found


@cache
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Those after the first."""
    return tuple(inspect.signature(function).parameters.values())[1:]
