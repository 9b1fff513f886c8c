"""What is derived of one trace, or of some tables, alone, and asked for often: made once, kept while they live."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, ref

from traceanalyzer.model import RankTrace
from traceanalyzer.model.aside import arrays_aside

P = ParamSpec("P")
T = TypeVar("T")


def once_a_trace(make: Callable[[RankTrace], T]) -> Callable[[RankTrace], T]:
    """`make`, whose answer is remembered for each trace.

    For small answers that many analyses read deep inside; what is large is `SHARED` of the registry and goes when the
    rank's tables are made. Callers must not change the answer, and it must not hold the trace, which then never went.
    """
    made: WeakKeyDictionary[RankTrace, T] = WeakKeyDictionary()

    @wraps(make)
    def of(trace: RankTrace) -> T:
        try:
            return made[trace]
        except KeyError:
            answer = make(trace)
            return made.setdefault(trace, arrays_aside(answer) if trace.is_large else answer)

    return of


def once_of_tables(make: Callable[P, T]) -> Callable[P, T]:
    """`make` of tables, or of what holds them, by position, and of values by name: remembered while the tables live.

    They are told apart by identity: tables of Results, which nobody changes. Callers must not change the answer
    either; one that holds a table (or is one of them) would keep it for ever, and is made anew each time.
    """
    made: dict[tuple[Any, ...], tuple[list[ref[Any]], T]] = {}

    @wraps(make)
    def of(*tables: P.args, **named: P.kwargs) -> T:
        key = (*map(id, tables), *named.items())
        if key in made:
            return made[key][1]
        answer = make(*tables, **named)
        if not any(answer is table for table in tables):
            made[key] = ([ref(table, lambda _gone: made.pop(key, None)) for table in tables], answer)
        return answer

    return of
