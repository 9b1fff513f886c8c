"""What is derived of a trace, or of tables, is made once for each, and goes with it."""

import gc
import weakref

import pandas as pd

from traceanalyzer.analyses.grouping import once_a_trace, once_of_tables
from traceanalyzer.model import RankMeta, make_trace


def test_made_once_for_each_trace_and_gone_with_it():
    asked = []

    @once_a_trace
    def number(trace):
        asked.append(trace.rank)
        return len(asked)

    first, second = (make_trace(RankMeta(rank, "path", (), "kineto")) for rank in (0, 1))
    assert [number(first), number(second), number(first)] == [1, 2, 1]
    held = weakref.ref(first)
    del first
    gc.collect()
    assert held() is None
    again = make_trace(RankMeta(0, "path", (), "kineto"))
    assert [number(again), asked] == [3, [0, 1, 0]]


def test_made_once_of_the_same_tables_and_gone_with_any_of_them():
    made = []

    @once_of_tables
    def both(table, column):
        answer = pd.concat([table, column.to_frame()])
        made.append(weakref.ref(answer))
        return answer

    one, two, column = pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]}), pd.Series([1, 2])
    assert both(one, column) is both(one, column)
    assert both(two, column) is not both(one, column)
    assert both(two, column) is not both(two, two["a"])
    del one
    gc.collect()
    assert [answer() is None for answer in made] == [True, False, True]  # the last one's column was nobody's
    assert both(two, column) is made[1]()


def test_a_table_that_is_the_answer_itself_is_not_held_for_ever():
    @once_of_tables
    def as_it_is(table):
        return table

    table = pd.DataFrame({"a": [1]})
    gone = []
    weakref.finalize(table, gone.append, "gone")
    assert as_it_is(table) is table
    del table
    gc.collect()
    assert gone == ["gone"]


def test_values_by_name_tell_answers_apart():
    @once_of_tables
    def above(table, *, least):
        return (table["a"] >= least).tolist()

    table = pd.DataFrame({"a": [1, 2]})
    assert [above(table, least=2), above(table, least=1)] == [[False, True], [True, True]]
