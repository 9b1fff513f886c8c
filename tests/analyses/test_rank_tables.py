"""Ranks' tables under each other: whatever is joined first, the same comes out."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceanalyzer.analyses.base import stack
from traceanalyzer.analyses.rank_tables import RankTables

COLUMNS = {
    "names": lambda n: pd.Categorical([f"k{n}"] * n),
    "sometimes": lambda n: pd.Categorical([None] * n) if n % 2 else pd.array(["x"] * n, dtype="str"),
    "counts": lambda n: np.arange(n) if n % 3 else pd.array([pd.NA] * n, dtype="Int64"),
    "shares": lambda n: np.full(n, np.nan) if n == 1 else np.ones(n),
    "texts": lambda n: np.array([None] * n, dtype=object),
}


def table_of_rows(rows):
    return pd.DataFrame({name: make(rows) for name, make in COLUMNS.items()}) if rows else pd.DataFrame()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.data())
def test_joining_is_associative(rows, data):
    tables = [table_of_rows(count) for count in rows]
    parts = [RankTables.of({place: table}) for place, table in enumerate(tables)]
    while len(parts) > 1:
        begin = data.draw(st.integers(0, len(parts) - 2))
        end = data.draw(st.integers(begin + 2, len(parts)))
        parts[begin:end] = [RankTables.joined(parts[begin:end])]
    (joined,) = parts
    at_once = RankTables.joined([RankTables.of(dict(enumerate(tables)))])
    pd.testing.assert_frame_equal(stack(joined, ("names",)), stack(at_once, ("names",)))
    pd.testing.assert_frame_equal(stack(joined, ("names",)), stack(dict(enumerate(tables)), ("names",)))
    assert {place: len(table) for place, table in joined.items()} == dict(enumerate(rows))


def test_ranks_are_put_in_order_and_those_left_out_are_gone():
    tables = RankTables.joined([RankTables.of({place: pd.DataFrame({"a": [place] * 2})}) for place in range(3)])
    chosen = tables.renumbered({2: 5, 0: 7})
    assert stack(chosen)[["rank", "a"]].to_numpy().tolist() == [[5, 2], [5, 2], [7, 0], [7, 0]]
    assert chosen[7]["a"].tolist() == [0, 0]
    with pytest.raises(KeyError):
        chosen[1]
