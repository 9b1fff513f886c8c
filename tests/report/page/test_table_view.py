import base64
import json
import zlib

import pandas as pd

from traceanalyzer.report.page.table_view import MOST_COLUMNS, PLAIN_ROWS, view_of


def extra(columns, values=(1, 2)):
    view = view_of(pd.DataFrame({name: list(values) for name in columns}), "x", {})
    return [column.name for column in view.columns if column.is_extra]


def test_only_wide_tables_keep_columns_for_a_click():
    narrow = ["rank", "comm_ns", *(f"c{place}" for place in range(MOST_COLUMNS - 2))]
    assert extra(narrow) == []
    assert extra([*narrow, "one_more"]) == ["comm_ns"]


def test_a_wide_table_hides_times_and_sizes_of_zero_but_no_shares_or_counts():
    columns = ["upload_ns", "sent_bytes", "wait_ns", "overlap_pct", *(f"calls{place}" for place in range(MOST_COLUMNS))]
    assert extra(columns, (0, 0)) == ["upload_ns", "sent_bytes"]
    assert extra(columns, (0, None)) == ["upload_ns", "sent_bytes"]
    assert extra(columns, (0, 1)) == []


def test_numbers_that_are_names_have_no_separators_and_counts_do():
    view = view_of(pd.DataFrame({"rank": [1024], "highest_rank": [1024], "operations": [1024]}), "x", {})
    assert [cell.text for cell in view.rows[0]] == ["1024", "1024", "1,024"]


def test_different_names_of_one_short_name_say_what_differs():
    names = [
        "nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NNN", "nvjet_sm90_tst_192x192_64x4_1x2_h_bz_coopB_TNN",
        "nvjet_sm90_tst_128x64_64x4_1x2_h_bz_coopB_TNN",
    ]  # fmt: skip
    shown = view_of(pd.DataFrame({"name": [*names, names[0]]}), "Kernels", {})
    assert [cell.text for cell, in shown.rows] == [
        "nvjet 192×192 bf16 · 64x3 NNN", "nvjet 192×192 bf16 · 64x4 TNN", "nvjet 128×64 bf16", "nvjet 192×192 bf16 · 64x3 NNN",
    ]  # fmt: skip
    assert [cell.full for (cell,) in shown.rows] == [*names, names[0]]


def test_true_is_not_shown_as_one_is():
    values = pd.Series([True, 1, 1.5, None, False, 1], dtype="object")
    shown = view_of(pd.DataFrame({"calls": values}), "x", {})
    assert [cell.text for (cell,) in shown.rows] == ["yes", "1", "1.50", "n/a", "no", "1"]
    assert shown.columns[0].is_number
    only = view_of(pd.DataFrame({"is_late": [True, False, True]}), "x", {})
    assert [cell.text for (cell,) in only.rows] == ["yes", "no", "yes"]
    assert not only.columns[0].is_number


def test_rows_after_the_first_are_packed_with_what_is_there_on_hover():
    table = pd.DataFrame({"size_bytes": [2_000] * PLAIN_ROWS + [1_234, 2_000], "name": ["a"] * PLAIN_ROWS + ["b", "a"]})
    packed = view_of(table, "x", {}).packed
    assert json.loads(zlib.decompress(base64.b64decode(packed))) == [[["1.23", "1234"], ["2", "2000"]], ["b", "a"]]
    assert view_of(table[:PLAIN_ROWS], "x", {}).packed is None
