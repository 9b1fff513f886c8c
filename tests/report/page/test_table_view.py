import pandas as pd

from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.table_view import view_of


def extra(columns, values=(1, 2)):
    view = view_of(pd.DataFrame({name: list(values) for name in columns}), "x", {})
    return [column.name for column in view.columns if column.is_extra]


def test_a_wide_table_hides_times_and_sizes_of_zero_but_no_shares_or_counts():
    columns = [
        "upload_ns",
        "sent_bytes",
        "wait_ns",
        "overlap_pct",
        *(f"calls{place}" for place in range(LAYOUT.table_columns)),
    ]
    assert extra(columns, (0, 0)) == ["upload_ns", "sent_bytes"]
    assert extra(columns, (0, None)) == ["upload_ns", "sent_bytes"]
    assert extra(columns, (0, 1)) == []


def test_numbers_that_are_names_have_no_separators_and_counts_do():
    view = view_of(pd.DataFrame({"rank": [1024], "highest_rank": [1024], "operations": [1024]}), "x", {})
    assert [cell.text for cell in view.rows[0]] == ["1024", "1024", "1,024"]
