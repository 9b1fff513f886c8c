"""A matrix product that communication slows differs from one that is slower by itself."""

import pandas as pd

from traceanalyzer.diff import joins
from traceanalyzer.diff.captures import STEP, Capture
from traceanalyzer.report.comparison import sentences


def joined(base, other, analysis):
    return next(table for table in joins.tables(base, other, STEP) if table.analysis == analysis)


def products(*rows):
    columns = ["rank", "phase", "product", "dtype", "calls", "gpu_ns", "calls_beside_comm", "gpu_beside_comm_ns"]
    return Capture("run", "traces", {"matrix_products": pd.DataFrame(rows, columns=columns)}, (2,), is_exact=True)


PRODUCT = (0, "forward", "[8192, 1024] × [1024, 4096]", "c10::BFloat16")


def said(base, other, step_ns=10_000_000):
    table = joined(products((*PRODUCT, *base)), products((*PRODUCT, *other)), "matrix_products")
    return [text.replace("\u202f", " ") for text in sentences.products(table, step_ns)]


def test_a_product_that_communication_slows_is_told_from_one_that_is_slower_by_itself():
    (slowed,) = said((48, 48 * 84_000, 0, 0), (48, 8 * 84_000 + 40 * 117_600, 40, 40 * 117_600))
    assert slowed == (
        "[8192, 1024] × [1024, 4096] bf16, forward: 84 µs → 112 µs per call, 48 calls, 0 → 40 of them while "
        "communication runs; the others 84 µs → 84 µs."
    )
    (slower,) = said((48, 48 * 84_000, 0, 0), (48, 48 * 112_000, 0, 0))
    assert slower.endswith("84 µs → 112 µs per call, 48 calls, none while communication runs.")
    (both,) = said((48, 48 * 84_000, 8, 8 * 84_000), (48, 48 * 112_000, 8, 8 * 112_000))
    assert both.endswith("8 of them while communication runs; the others 84 µs → 112 µs.")
