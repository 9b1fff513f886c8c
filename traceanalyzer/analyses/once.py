"""What is derived of one trace alone, and asked for again and again: made once, kept while the trace lives."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from traceanalyzer.model import RankTrace

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
            return made.setdefault(trace, make(trace))

    return of
