"""What all analyses of a rank cost, in calls of functions: unlike time they are the same on a busy machine."""

import sys
from collections.abc import Callable

from tests.samples import sample
from traceanalyzer.analyses import reduce_rank

MOST_CALLS = 340_000
"""Python's and C's, of a rank of 12 MB, which takes 302,000."""


def test_analyses_of_a_rank_make_few_calls():
    trace = sample("ddp").ranks[0]
    reduce_rank(trace)  # what is made once a process and once a trace
    assert calls_of(lambda: reduce_rank(trace)) < MOST_CALLS


def calls_of(work: Callable[[], object]) -> int:
    made = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return made
