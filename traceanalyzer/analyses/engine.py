"""How analyses are run: each once, on one rank's events, then over all ranks' small tables."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from traceanalyzer import validation
from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.integrity.checks import EVENTS
from traceanalyzer.analyses.registry import ANALYSES, SHARED
from traceanalyzer.errors import Failure, UsageError
from traceanalyzer.execution import Shared, all_aside, can_fork
from traceanalyzer.files.bounds import give_back_grown, give_back_memory
from traceanalyzer.meaning.vocabulary import GRAVE
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import TABLES
from traceanalyzer.model.tables import pandas_set_up, spilled, spilled_arrays
from traceanalyzer.validation import shown

if TYPE_CHECKING:
    from traceanalyzer.analyses.results import Results


# What each analysis needs, by the names of its parameters, and what is reached by something that is wrong.


_OF_WHAT_IS_WRONG = ("integrity", "ranks")
"""They say what is here and what is wrong with it: nothing makes that unreliable, nor what takes a name from there."""


Makers = Mapping[str, Callable[..., Any] | None]
"""What makes each part, by name; its parameters name parts."""

RANK_MAKERS: Makers = {name: ANALYSES[name].per_rank for name in ANALYSES} | {**SHARED}
"""Of one rank's tables, and of what they share."""

RESULT_MAKERS: Makers = {name: ANALYSES[name].across for name in ANALYSES}
"""Of all ranks' Results."""


def _with_all(names: Iterable[str], follow: Callable[[str], Iterable[str]]) -> list[str]:
    """The names and all that follow from them, directly or not, in order of appearance."""
    found = [*dict.fromkeys(names)]
    for name in found:  # which grows meanwhile
        found += [one for one in dict.fromkeys(follow(name)) if one not in found]
    return found


@cache
def parameters_of(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Those that name something: not the rank's trace, nor all ranks' parts."""
    return tuple(one for one in inspect.signature(function).parameters.values() if one.name not in _GIVEN)


_PARTS = {"parts", "_parts"}
_GIVEN = {"trace", "_trace", *_PARTS}


def _named_by(function: Callable[..., Any] | None) -> list[str]:
    """Analyses, and what they share, that it takes by name: thresholds have defaults, needs have none."""
    names = [one.name for one in (parameters_of(function) if function else ()) if one.default is one.empty]
    return [name for name in names if name in ANALYSES or name in SHARED]


def needs_of(name: str, makers: Makers) -> set[str]:
    """What a part needs of what these make, directly or not."""
    return {*_with_all([name], lambda one: [each for each in _named_by(makers[one]) if each in makers])} - {name}


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


def with_needed(names: Iterable[str]) -> list[str]:
    """The analyses and all that they need, directly or not."""
    return _with_all(names, lambda name: [one for one in _needed_by(name) if one in ANALYSES])


def reached_by(names: Iterable[str]) -> tuple[str, ...]:
    """Analyses whose figures rest on any of these, directly or not, in the registry's order.

    Args:
        names: analyses, what they share, event tables, or `EVENTS` for all of these.
    """
    wanted = {*names}
    return tuple(
        name
        for name in ANALYSES
        if name not in _OF_WHAT_IS_WRONG and not wanted.isdisjoint(_with_all([name], _rests_on))
    )


def _rests_on(name: str) -> list[str]:
    """What an analysis, or what is shared, is made of: both of these, and event tables, of which it may be any."""
    analysis = ANALYSES.get(name)
    tables = () if analysis is None or analysis.per_rank is None else (EVENTS, *(analysis.of or TABLES))
    return [one for one in (*_needed_by(name), *tables) if one not in _OF_WHAT_IS_WRONG]


def _needed_by(name: str) -> list[str]:
    """What an analysis, or what is shared, takes by name."""
    if name in ANALYSES:
        return [*_named_by(ANALYSES[name].across), *_named_by(ANALYSES[name].per_rank)]
    return _named_by(SHARED.get(name))


# Which Results the integrity checks make unreliable, and why: the marks of reports and the answers of gates.


def by_check(integrity: pd.DataFrame) -> list[tuple[str, tuple[str, ...]]]:
    """A sentence for each check that marks, gravest first, of the rank that it concerns most; and what it reaches."""
    frame = integrity[integrity["severity"].isin(GRAVE)]
    made = []
    for _, rows in frame.groupby("check", sort=False):
        worst = rows.loc[rows["count"].fillna(0).idxmax()]
        sentence = str(worst["sentence"]) if pd.isna(worst["rank"]) else f"Rank {worst['rank']}: {worst['sentence']}"
        if len(rows) > 1:
            sentence += f" The same is found on {len(rows) - 1:,} other rank{'s' if len(rows) > 2 else ''}."
        named = {name for text in rows["affects"] for name in str(text).split(", ")}
        made.append((sentence, reached_by(named)))
    return made


def reasons(integrity: pd.DataFrame | None) -> dict[str, tuple[str, ...]]:
    """By name of each Result whose figures are in doubt, why, sentence by sentence; none without the table."""
    found: dict[str, tuple[str, ...]] = {}
    for sentence, affects in by_check(integrity) if integrity is not None and len(integrity) else ():
        for name in affects:
            found[name] = (*found.get(name, ()), sentence)
    return found


# Analyses on several cores: forks of this process make some of a large rank's tables.
#
# What is made is the same whoever makes it. A fork leaves out what fails: it fails again in this process,
# which notes it.


LONGEST = ("host_events", "operator_shapes", "replay", "host_work", "idle")
"""Begun first, so that nobody waits for one of them at the end; no figure depends on it."""

_MOST = 10
"""Processes that find enough to do, the longest chain of analyses taking a fifth of the time of all."""


def made_in_parallel(
    needs: Mapping[str, set[str]],
    first: Sequence[str],
    make: Callable[[str], Any],
    held: Callable[[str], Any],
    processes: int,
) -> dict[str, Any]:
    """What forks made, while this process made `first` what many need.

    Args:
        needs: of each analysis, what it needs.
        first: what this process makes.
        make: makes an analysis' table, or what is shared, and keeps it in its process.
        held: what of an analysis this process has by now; `None` for nothing.
        processes: how many may work at it, this one among them.
    """
    processes = min(processes, _MOST)
    order = sorted(needs, key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))
    free, bound = (
        Shared([name for name in order if needs[name].isdisjoint(first) is is_free]) for is_free in (True, False)
    )
    forks = all_aside([partial(_taken, free, make, held)] * (processes // 2), processes=processes)
    left = processes - 1 - len(forks)
    for name in first:
        with suppress(Exception):
            make(name)
    forks += all_aside([partial(_taken, bound, make, held)] * left, processes=processes)
    for queue in (bound, free):
        _taken(queue, make, held)
        queue.close()
    return {name: made for wait in forks for name, made in wait().items() if held(name) is None}


def _taken(queue: Shared[str], make: Callable[[str], Any], held: Callable[[str], Any]) -> dict[str, Any]:
    """Make what nobody else has taken, as far as it can be made."""
    tried = []
    for name in queue.rest():
        tried.append(name)
        with suppress(Exception):
            make(name)
    return {name: made for name in tried if (made := held(name)) is not None}


# Results by the names of their analyses, and what is said where there is none of a name.


class NoSuchResultError(UsageError, KeyError):
    """No Result has that name, or it was not asked for."""

    __str__ = Exception.__str__  # a KeyError shows its message as Python writes it


class ByName(dict[str, Result]):
    """Results by the name of their analysis."""

    def __missing__(self, name: object) -> Result:
        """Say what is wrong with a name that none of them has."""
        if isinstance(name, str) and name in ANALYSES:
            raise NoSuchResultError(f"{name} is not among these Results: {', '.join(self)}")
        raise NoSuchResultError(no_such_analysis(name))


def no_such_analysis(name: object) -> str:
    """That there is none, with those of like names."""
    return f"no analysis is called {shown(name)}; {_near(name, ANALYSES)}"


def no_such_threshold(option: str, known: Iterable[str]) -> str:
    """That nothing takes it, with those of like names."""
    return f"no threshold is called {option!r}; {_near(option, known)}"


def _near(name: object, known: Iterable[str]) -> str:
    """Names like it; all where there is none."""
    names = (difflib.get_close_matches(name, known, 3) if isinstance(name, str) else []) or [*known]
    return f"{'did you mean' if len(names) <= 3 else 'there are'} {', '.join(names)}"


# How analyses are run: each once, on one rank's events, then over all ranks' small tables.
#
# With a list for failures an analysis that raises is noted there and what needs it is left out with it; the
# others go on.


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
    options = {name: validation.threshold(name, value, kinds[name]) for name, value in options.items()}
    with pandas_set_up():
        parts = {trace.rank: reduce_rank(trace, wanted, **options) for trace in ranks}
        return combine(parts, wanted, **options)


def _unknown(option: str, wanted: tuple[str, ...], known: Mapping[str, Any]) -> str:
    """What is wrong with an option, and which functions take it."""
    of_whom = wanted[0] if len(wanted) == 1 else "these analyses"
    takers = [name for name in ANALYSES if any(one.name == option for one in _thresholds(name))]
    if takers:
        return f"{of_whom} takes no {option!r}: {', '.join(takers)} {'does' if len(takers) == 1 else 'do'}"
    return no_such_threshold(option, known) if known else f"no threshold is called {option!r}; {of_whom} takes none"


def thresholds_of(names: Iterable[str]) -> dict[str, Any]:
    """Thresholds of the named analyses and of all that they need, by parameter name, with their defaults."""
    return {one.name: one.default for name in with_needed(names) for one in _thresholds(name)}


def kinds_of_thresholds(names: Iterable[str]) -> dict[str, Any]:
    """The same with the type of each."""
    return {one.name: one.annotation for name in with_needed(names) for one in _thresholds(name)}


def _thresholds(name: str) -> list[inspect.Parameter]:
    functions = (ANALYSES[name].across, ANALYSES[name].per_rank)
    parameters = [one for function in functions if function for one in parameters_of(function)]
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
        tables = () if name in SHARED else ANALYSES[name].of
        if tables and not any(len(trace.table(one)) for one in tables):
            return done.setdefault(name, _NOTHING)
        if name not in done and make is not None:
            if trace.is_large:  # else what the ones before used and freed lies between what is kept
                give_back_memory() if name in LONGEST else give_back_grown()
            made = care.made(name, lambda: make(trace, **_needed(make, table, options)))  # noqa: F821 - until the end
            done[name] = _spilled_if_large(name, made) if trace.is_large else made
        return done[name]

    wanted = [name for name in with_needed(names) if ANALYSES[name].per_rank is not None]
    if processes > 1 and can_fork():
        needs = {name: needs_of(name, RANK_MAKERS) for name in wanted}
        first = [name for name in SHARED if sum(name in own for own in needs.values()) > 1]
        sent = made_in_parallel(needs, first, table, done.get, processes)
        done |= {name: _spilled_if_large(name, sent.pop(name)) for name in [*sent]}
    for name, unused in with_last_uses(wanted):
        with suppress(_LeftOutError):
            table(name)
        for one in unused:
            done.pop(one, None)
    care.settle()
    del table  # it holds itself, and with it all events
    return {name: done[name] for name in wanted if name in done}


_NOTHING = pd.DataFrame()


def _spilled_if_large(name: str, made: Any) -> Any:
    return spilled(made) if name in ANALYSES else spilled_arrays(made)


def combine(
    parts: Mapping[int, Parts],
    names: Iterable[str] = ANALYSES,
    failures: list[Failure] | None = None,
    **options: Any,
) -> "Results":
    """Results from all ranks' small tables; each is computed once."""
    made = dict.fromkeys(name for own in parts.values() for name in own)
    tables: dict[str, Mapping[int, pd.DataFrame]] = {
        name: {rank: own[name] for rank, own in parts.items() if name in own} for name in made
    }
    return combine_tables(tables, len(parts), names, failures, **options)


def combine_tables(
    tables: MutableMapping[str, Mapping[int, pd.DataFrame]],
    ranks: int,
    names: Iterable[str] = ANALYSES,
    failures: list[Failure] | None = None,
    *,
    made_before: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> "Results":
    """The same from each analysis' tables, by rank, of so many ranks.

    With a list for failures (which holds those of the ranks) a Result that could not be made is empty, and so is one
    that lacks a rank's part. Results that were `made_before` of the same tables, with the same list for failures, are
    not made again. An analysis' tables are taken out of `tables` once its Result is there, which would else hold the
    same rows a second time.
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
    for name in names:
        try:
            made[name] = result(name)
            tables.pop(name, None)
        except _LeftOutError:
            made[name] = ANALYSES[name].result.without_rows()
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
    own = (parts,) if _PARTS & {*inspect.signature(across).parameters} else ()
    made = _spilled(across(*own, **needed))
    if is_guarded and not made.is_event_copy:
        made.to_frame()  # what is derived can fail too
    return made


def _spilled(made: Result) -> Result:
    """The Result, its table in a file where it is large."""
    table = spilled(made.table)
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
        """Add what failed to the list; it does not show which of several failures left an analysis out."""
        if self.failures is not None:
            blamed = self.own or self.failures
            failed = {failure.name for failure in blamed}
            lost = sorted(name for name in self.left_out - failed if name in ANALYSES)
            self.failures += self.own
            if blamed:
                place = next(n for n, failure in enumerate(self.failures) if failure.name == blamed[0].name)
                self.failures[place] = self.failures[place].with_left_out(lost)


def _needed(function: Callable[..., Any], source: Callable[[str], Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments after the first: tables or Results by name, and options where they are given."""
    given = {one.name: options[one.name] for one in parameters_of(function) if one.name in options}
    return given | {name: source(name) for name in _named_by(function)}
