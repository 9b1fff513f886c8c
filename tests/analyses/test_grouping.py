"""Groups agree with pandas' own grouping, for every type of key."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.grouping import Groups, first_of_each


def _table(rows: int) -> pd.DataFrame:
    dice = np.random.default_rng(rows)
    table = pd.DataFrame(
        {
            "number": dice.integers(0, 5, rows),
            "text": pd.Series(dice.choice(["x", "yy", "a", None], rows), dtype="str"),
            "plain": pd.Series(dice.choice(["x", "yy", "a", None], rows), dtype="object"),
            "name": pd.Categorical(dice.choice(["z", "b", None], rows), categories=["z", "b", "unused"]),
            "maybe": pd.array(dice.integers(0, 3, rows), dtype="Int64"),
            "value": dice.integers(-9, 2**60, rows),
            "known": pd.array(dice.integers(0, 9, rows), dtype="Int64"),
        }
    )
    if rows:
        table.loc[0, "maybe"] = pd.NA
        table.loc[table["number"] == 1, "known"] = pd.NA
    return table


@pytest.mark.parametrize("rows", [0, 1, 60])
@pytest.mark.parametrize("by_appearance", [False, True])
@pytest.mark.parametrize(
    "by", [["number"], ["number", "text"], ["text", "plain"], ["name", "number"], ["maybe", "name"], ["plain"]]
)
def test_groups_and_sums_are_those_of_pandas(rows, by, by_appearance):
    table = _table(rows)
    theirs = table.groupby(by, observed=True, sort=not by_appearance)
    groups = Groups.of(table, by, by_appearance=by_appearance)
    pd.testing.assert_frame_equal(
        groups.totals(table, ["value", "known"]), theirs[["value", "known"]].sum(min_count=1).reset_index()
    )
    assert groups.of_row.tolist() == theirs.ngroup().fillna(-1).tolist()
    assert groups.counts().tolist() == theirs.size().tolist()
    assert groups.largest(table["value"].to_numpy()).tolist() == theirs["value"].max().tolist()
    assert groups.smallest(table["value"].to_numpy()).tolist() == theirs["value"].min().tolist()


@pytest.mark.parametrize("by", [["name", "number"], ["maybe", "name"], ["plain", "text"]])
def test_absent_values_are_groups_of_their_own_where_asked_for(by):
    table = _table(60)
    theirs = table.groupby(by, observed=True, dropna=False, sort=False)
    groups = Groups.of(table, by, by_appearance=True, with_absent=True)
    assert groups.of_row.tolist() == theirs.ngroup().tolist()
    assert groups.sums(table["value"].to_numpy()).tolist() == theirs["value"].sum().tolist()


def test_the_first_rows_of_each_group():
    assert first_of_each(np.array([7, 3, 7, 7, 3]), 2).tolist() == [True, True, True, False, True]
    assert first_of_each(np.array([], dtype=np.int64), 2).tolist() == []
