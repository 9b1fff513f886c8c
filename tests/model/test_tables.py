"""Tables of whole columns are those that pandas makes of them."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.model.tables import (
    array_of,
    column_of,
    columns_as_they_are,
    columns_of,
    picked,
    sorted_by,
    table_of,
    under_each_other,
    with_columns,
)

COLUMNS = {
    "integers": np.array([3, 1, 2]),
    "floats": np.array([0.5, np.nan, 1.0]),
    "flags": np.array([True, False, True]),
    "names": pd.Categorical(["b", None, "a"]),
    "sizes": pd.array([2, None, 5], dtype="Int64"),
    "rates": pd.array([2.5, None, 5.0], dtype="Float64"),
    "known": pd.array([True, None, False], dtype="boolean"),
    "texts": np.array(["x", "y", None], dtype=object),
    "mixed": np.array(["x", 1, None], dtype=object),
    "listed": ["p", "q", "r"],
    "listed, some absent": ["p", None, np.nan],
    "listed numbers": [3, -1, 2],
    "listed, some no numbers": [3, None, 2],
    "too large for a word": [2**63, 1, 2],
    "larger": [2**64, 1, 2],
    "listed flags": [True, False, True],
    "flags among numbers": [True, 1, 0],
    "no value": [None, None, None],
    "series": pd.Series([7, 8, 9]),
    "objects": pd.Series(["x", None, "z"], dtype="object"),
    "one": 4,
    "word": "w",
    "none": None,
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_as_pandas_takes_it(name):
    columns = {"first": np.arange(3), name: COLUMNS[name]}
    pd.testing.assert_frame_equal(table_of(columns), pd.DataFrame(columns))


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_read_as_pandas_reads_it(name):
    table = table_of({"first": np.arange(3), name: COLUMNS[name]})
    array, column = array_of(table, name), column_of(table, name)
    assert array.dtype == table[name].to_numpy().dtype
    pd.testing.assert_series_equal(pd.Series(array), pd.Series(table[name].to_numpy()))
    assert type(column) is type(table[name].array)
    pd.testing.assert_extension_array_equal(column, table[name].array)
    with pytest.raises(KeyError):
        array_of(table, "of no column")


def test_series_that_are_numbered_otherwise_are_matched_by_pandas():
    columns = {"a": pd.Series([1, 2], index=[5, 6]), "b": pd.Series([3, 4], index=[6, 5])}
    pd.testing.assert_frame_equal(table_of(columns), pd.DataFrame(columns))


def test_a_table_without_columns_has_no_rows():
    assert table_of({}).empty


def test_columns_are_not_to_be_written_to():
    table = table_of({"a": np.arange(3)})
    with pytest.raises(ValueError, match="read-only"):
        columns_of(table)["a"][0] = 9


def test_changed_tables_are_those_of_pandas():
    table = pd.DataFrame(COLUMNS)
    rows = np.array([2, 0])
    expected = table.assign(integers=np.array([0, 0, 1]), more="m")
    pd.testing.assert_frame_equal(with_columns(table, integers=np.array([0, 0, 1]), more="m"), expected)
    pd.testing.assert_frame_equal(table_of(columns_as_they_are(table)), table)
    pd.testing.assert_frame_equal(
        picked(table, rows, ["names", "sizes"]), table[["names", "sizes"]].iloc[rows].reset_index(drop=True)
    )


@pytest.mark.parametrize("name", ["integers", "sizes", "floats", "rates"])
def test_sorting_leaves_equal_rows_as_they_are(name):
    table = pd.concat([pd.DataFrame(COLUMNS)] * 2, ignore_index=True).assign(place=range(6))
    expected = table.sort_values(name, ascending=False, kind="stable", ignore_index=True)
    pd.testing.assert_frame_equal(sorted_by(table, name), expected)


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"names": pd.Categorical(["c", "b", None])},
        {"integers": pd.array([1, None, 2], dtype="Int64")},
        {"objects": pd.Series([1, 2, 3])},
        {"further": np.arange(3)},
    ],
    ids=["alike", "other names", "other integers", "no objects", "a further column"],
)
def test_tables_under_each_other(other):
    tables = [pd.DataFrame(COLUMNS), pd.DataFrame({**COLUMNS, **other})]
    pd.testing.assert_frame_equal(under_each_other(tables), pd.concat(tables, ignore_index=True))
