"""How analyses are run: each once, on one rank's events, then over all ranks' small tables.

With a list for failures an analysis that raises is noted there and what needs it is left out with it; the others go on.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from traceanalyzer import given
from traceanalyzer.analyses.at_once import LONGEST, joined_at_once, made_at_once
from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.by_name import ByName
from traceanalyzer.analyses.dependencies import Parameter, parameters_of, with_last_uses, with_needed
from traceanalyzer.analyses.registry import ANALYSES, SHARED
from traceanalyzer.errors import UsageError
from traceanalyzer.failures import Failure
from traceanalyzer.files.unnamed import give_back_grown, give_back_memory
from traceanalyzer.forks import can_fork
from traceanalyzer.model import RankTrace
from traceanalyzer.model.aside import arrays_aside, laid_aside
from traceanalyzer.model.text_storage import texts_in_python

if TYPE_CHECKING:
    from traceanalyzer.analyses.results import Results

Parts = Mapping[str, pd.DataFrame]
"""One rank's small tables, by analysis."""


def run(ranks: Iterable[RankTrace], names: Iterable[str] = ANALYSES, **options: Any) -> "Results":
    """The named analyses of some ranks in this process; `options` are thresholds, by parameter name.

    Raises:
        UsageError: an option is no threshold of these analyses, or its value is of another kind.
    """
    wanted = tuple(names)
    known = thresholds_of(wanted)
    unknown = [name for name in options if name not in known]
    if unknown:
        raise UsageError(_unknown(unknown[0], wanted, known))
    kinds = kinds_of_thresholds(wanted)
    options = {name: given.threshold(name, value, kinds[name]) for name, value in options.items()}
    with texts_in_python():
        parts = {trace.rank: reduce_rank(trace, wanted, **options) for trace in ranks}
        return combine(parts, wanted, **options)


def _unknown(option: str, wanted: tuple[str, ...], known: Mapping[str, Any]) -> str:
    """What is wrong with an option, and which functions take it."""
    of_whom = wanted[0] if len(wanted) == 1 else "these analyses"
    takers = [name for name in ANALYSES if option in _own_thresholds(name)]
    if takers:
        return f"{of_whom} takes no {option!r}: {', '.join(takers)} {'does' if len(takers) == 1 else 'do'}"
    return no_such_threshold(option, known) if known else f"no threshold is called {option!r}; {of_whom} takes none"


def no_such_threshold(option: str, known: Iterable[str]) -> str:
    """That nothing takes it, with those of like names; with all where there is none."""
    near = difflib.get_close_matches(option, known, 3) or list(known)
    return f"no threshold is called {option!r}; {'did you mean' if len(near) <= 3 else 'there are'} {', '.join(near)}"


def _own_thresholds(name: str) -> set[str]:
    functions = (ANALYSES[name].across, ANALYSES[name].per_rank)
    return {p.name for function in functions if function for p in parameters_of(function) if p.default is not p.empty}


def thresholds_of(names: Iterable[str]) -> dict[str, Any]:
    """Thresholds of the named analyses and of all that they need, by parameter name, with their defaults."""
    return {one.name: one.default for one in _thresholds(names)}


def kinds_of_thresholds(names: Iterable[str]) -> dict[str, Any]:
    """The same with the type of each."""
    return {one.name: one.annotation for one in _thresholds(names)}


def _thresholds(names: Iterable[str]) -> list[Parameter]:
    functions = [made for name in with_needed(names) for made in (ANALYSES[name].across, ANALYSES[name].per_rank)]
    parameters = [one for function in functions if function is not None for one in parameters_of(function)]
    return [one for one in parameters if one.default is not one.empty]


def reduce_rank(
    trace: RankTrace,
    names: Iterable[str] = ANALYSES,
    failures: list[Failure] | None = None,
    *,
    processes: int = 1,
    **options: Any,
) -> dict[str, pd.DataFrame]:
    """One rank's small tables: all that analyses need of its events; without those that failed.

    With `processes` forks of this one make a share of them, where it can be forked.
    """
    done: dict[str, Any] = {}
    care = _Care(failures, trace.rank)

    def table(name: str) -> Any:
        make = SHARED[name] if name in SHARED else ANALYSES[name].per_rank
        if name not in SHARED and _has_none_of(trace, ANALYSES[name].of):
            return done.setdefault(name, _NOTHING)
        if name not in done and make is not None:
            if trace.is_large:  # else what the ones before used and freed lies between what is kept
                give_back_memory() if name in LONGEST else give_back_grown()
            made = care.made(name, lambda: make(trace, **_needed(make, table, options)))  # noqa: F821 - until the end
            done[name] = _aside(name, made) if trace.is_large else made
        return done[name]

    wanted = [name for name in with_needed(names) if ANALYSES[name].per_rank is not None]
    if processes > 1 and can_fork():
        sent = made_at_once(wanted, table, done.get, processes)
        done |= {name: _aside(name, sent.pop(name)) for name in [*sent]}
    for name, unused in with_last_uses(wanted):
        with suppress(_LeftOutError):
            table(name)
        for one in unused:
            done.pop(one, None)
    care.settle()
    del table  # it holds itself, and with it all events
    return {name: done[name] for name in wanted if name in done}


_NOTHING = pd.DataFrame()


def _aside(name: str, made: Any) -> Any:
    return laid_aside(made) if name in ANALYSES else arrays_aside(made)


def _has_none_of(trace: RankTrace, tables: tuple[str, ...]) -> bool:
    return bool(tables) and not any(len(trace.table(name)) for name in tables)


def combine(
    parts: Mapping[int, Parts],
    names: Iterable[str] = ANALYSES,
    failures: list[Failure] | None = None,
    **options: Any,
) -> "Results":
    """Results from all ranks' small tables; each is computed once."""
    found: dict[str, dict[int, pd.DataFrame]] = {}
    for rank, own in parts.items():
        for name, table in own.items():
            found.setdefault(name, {})[rank] = table
    tables: dict[str, Mapping[int, pd.DataFrame]] = {**found}
    return combine_tables(tables, len(parts), names, failures, **options)


def combine_tables(
    tables: MutableMapping[str, Mapping[int, pd.DataFrame]],
    ranks: int,
    names: Iterable[str] = ANALYSES,
    failures: list[Failure] | None = None,
    *,
    processes: int = 1,
    made_before: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> "Results":
    """The same from each analysis' tables, by rank, of so many ranks.

    With a list for failures (which holds those of the ranks) a Result that could not be made is empty, and so is one
    that lacks a rank's part. With `processes` forks of this one make a share, where it can be forked. Results that were
    `made_before` of the same tables, with the same list for failures, are not made again. An analysis' tables are taken
    out of `tables` once its Result is there, which would else hold the same rows a second time.
    """
    care = _Care(failures)
    if made_before:
        care.left_out |= {name for failure in failures or () for name in (failure.name, *failure.left_out)}
    done: dict[str, Result] = {name: made for name, made in made_before.items() if name not in care.left_out}

    def own(name: str) -> Mapping[int, pd.DataFrame]:
        held = tables.get(name, {})
        if failures is not None and ANALYSES[name].per_rank is not None and len(held) < ranks:
            raise _LeftOutError
        return held

    def result(name: str) -> Result:
        if name not in done:
            done[name] = care.made(
                name,
                lambda: _across(name, own(name), result, options, is_guarded=failures is not None),  # noqa: F821 - until the end
            )
        return done[name]

    made = ByName()
    names = tuple(names)
    if processes > 1 and can_fork():
        sent = joined_at_once(names, result, done.get, processes)
        done |= {name: _laid(sent.pop(name)) for name in [*sent]}  # one after the other: else all are there twice
    for name in names:
        try:
            made[name] = result(name)
            tables.pop(name, None)
        except _LeftOutError:
            made[name] = _without_rows(name)
    care.settle()
    del result  # it holds itself, and with it all ranks' tables
    return cast("Results", made)


def _across(
    name: str,
    parts: Mapping[int, pd.DataFrame],
    source: Callable[[str], Any],
    options: Mapping[str, Any],
    *,
    is_guarded: bool,
) -> Result:
    across = ANALYSES[name].across
    needed = _needed(across, source, options)
    give_back_grown()
    made = _laid(across(parts, **needed))
    if is_guarded and not made.is_event_copy:
        made.to_frame()  # what is derived can fail too
    return made


def _laid(made: Result) -> Result:
    """The Result, its table in a file where it is large."""
    table = laid_aside(made.table)
    return made if table is made.table else replace(made, table=table)


class _LeftOutError(Exception):
    """What is asked for failed, or needs what failed."""


class _Care:
    """Notes which analyses failed in a list, where there is one, and what is left out for them."""

    def __init__(self, failures: list[Failure] | None, rank: int | None = None) -> None:
        self.failures = failures
        self.rank = rank
        self.own: list[Failure] = []
        self.left_out: set[str] = set()

    def made(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` gives.

        Raises:
            _LeftOutError: it failed, now or before.
        """
        if name in self.left_out:
            raise _LeftOutError
        try:
            return make()
        except _LeftOutError:
            self.left_out.add(name)
            raise
        except MemoryError:  # the machine's, and no bug
            raise
        except Exception as error:
            if self.failures is None:
                raise
            self.left_out.add(name)
            self.own.append(Failure.of(name, f"Analysis {name}", error, self.rank))
            raise _LeftOutError from error

    def settle(self) -> None:
        """Add what failed to the list; which analysis is left out for which of several is not told apart."""
        if self.failures is not None:
            blamed = self.own or self.failures
            failed = {failure.name for failure in blamed}
            lost = sorted(name for name in self.left_out - failed if name in ANALYSES)
            self.failures += self.own
            if blamed:
                place = next(n for n, failure in enumerate(self.failures) if failure.name == blamed[0].name)
                self.failures[place] = self.failures[place].with_left_out(lost)


def _without_rows(name: str) -> Result:
    gives: type[Result] = inspect.signature(ANALYSES[name].across).return_annotation
    return gives.without_rows()


def _needed(function: Callable[..., Any], source: Callable[[str], Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments after the first: tables or Results by name, and options where they are given."""
    parameters = parameters_of(function)
    given = {p.name: options[p.name] for p in parameters if p.name in options}
    wanted = [p.name for p in parameters if p.default is p.empty and (p.name in ANALYSES or p.name in SHARED)]
    return given | {name: source(name) for name in wanted}
