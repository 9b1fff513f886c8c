"""Groups agree with pandas' own grouping, for every type of key."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.grouping import Groups, at_places, first_of_each, places_of, stable_order


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


def test_what_is_told_of_each_group_s_distinct_values() -> None:
    groups = Groups.of({"key": np.array([2, 1, 2, 1, 2])}, ["key"])
    values = pd.array(["b", None, "a", None, "b"], dtype="str")
    assert groups.told(values, lambda found: ", ".join(sorted(found)) or None) == [None, "a, b"]


def test_row_of_each_group_s_largest_value_is_the_first_of_equal_ones() -> None:
    groups = Groups.of({"key": pd.array([2, 1, None, 2, 2], dtype="Int64")}, ["key"])
    assert groups.at_largest(np.array([3, 5, 9, 7, 7])).tolist() == [1, 3]


def test_places_of_keys_in_another_table() -> None:
    known = pd.DataFrame({"name": ["b", "a", None, "b"], "rank": [0, 1, 1, 0]})
    wanted = {"rank": np.array([1, 0, 1, 2]), "name": pd.array([None, "b", "a", "a"], dtype="str")}
    places = places_of(wanted, known, ("name", "rank"))
    assert places.tolist() == [2, 0, 1, -1]
    assert at_places(["x", "y", "z", "u"], places, absent=None).tolist() == ["z", "x", "y", None]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64", "float64"])
@pytest.mark.parametrize("rows", [0, 3, 2_000])
@pytest.mark.parametrize("span", [100, 2**16 - 1, 2**16, 2**40])
@pytest.mark.parametrize("least", [-50, 0, 10**18])
def test_order_is_that_of_a_stable_sort_whatever_the_numbers(dtype, rows, span, least):
    limits = np.iinfo(dtype) if dtype.startswith(("i", "u")) else np.iinfo("int64")
    low = min(max(least, limits.min), limits.max)
    values = np.random.default_rng(rows).integers(low, min(low + span, limits.max), max(rows - 2, 0), endpoint=True)
    values = np.append(values, [low, min(low + span, limits.max)]).astype(dtype)[:rows][::-1]
    if dtype == "float64":
        values = values / 3
    assert stable_order(values).tolist() == np.argsort(values, kind="stable").tolist()


def test_groups_of_numbers_are_in_their_order():
    numbers = np.array([70_000, -1, 70_000, 5, -1])
    groups = Groups.of_numbers(numbers)
    assert (groups.of_row.tolist(), groups.first.tolist()) == ([2, 0, 2, 1, 0], [1, 3, 0])
    assert (groups.counts().tolist(), groups.sums(np.arange(5)).tolist()) == ([2, 1, 2], [5, 3, 2])
