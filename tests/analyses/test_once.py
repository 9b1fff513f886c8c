"""What is derived of a trace is made once for each, and goes with it."""

import gc

from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.model import RankMeta, make_trace


def test_made_once_for_each_trace_and_gone_with_it():
    asked = []

    @once_a_trace
    def number(trace):
        asked.append(trace.rank)
        return len(asked)

    first, second = (make_trace(RankMeta(rank, "path", (), "kineto")) for rank in (0, 1))
    assert [number(first), number(second), number(first)] == [1, 2, 1]
    del first
    gc.collect()
    again = make_trace(RankMeta(0, "path", (), "kineto"))
    assert [number(again), asked] == [3, [0, 1, 0]]
