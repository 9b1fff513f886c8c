"""Rules about sums by index, and products with one-hot rows."""

import pytest

from tests.findings.devices.test_recomputing import MS
from tests.findings.devices.test_written_out import results_of
from traceanalyzer.findings.devices.kernels import one_hot_products, sums_on_few_rows

NAMES = ("headline", "steps", "operator_shapes")
SUMS = ("aten::index_add_", "[[16, 64], [], [65536], [65536, 64], []]", 20)
ONE_HOT = [
    ("aten::scatter_", "[[8, 128, 4000], [], [8, 128, 1], []]", 1),
    ("aten::one_hot", "[[8, 128], []]", 1),
]
PRODUCT = ("aten::mm", "[[1024, 4000], [4000, 64]]", 20)


def found(rule, work):
    results = results_of(work, names=NAMES)
    return rule(*(results[name] for name in NAMES))


def test_many_values_are_added_into_each_of_few():
    (one,) = found(sums_on_few_rows, [SUMS])
    assert one.title == (
        "Rank 0's GPU adds [65536, 64] into [16, 64] by aten::index_add_: 4,096 values into each one, which wait for "
        "each other. That takes 20 ms a step, 20 % of a step."
    )
    assert (one.gain_ns, one.gain_is_bound) == (20 * MS, True)


def test_the_backward_of_picking_rows_by_an_index_is_told_what_does_not_wait():
    """The indices are a list, of which no shapes are recorded."""
    (one,) = found(sums_on_few_rows, [("aten::_index_put_impl_", "[[16, 64], [], [65536, 64], [], []]", 20)])
    assert "adds [65536, 64] into [16, 64] by aten::_index_put_impl_: 4,096 values into each one" in one.title
    assert one.recommendation.startswith("Look rows up by torch.nn.functional.embedding(index, weight)")
    (other,) = found(sums_on_few_rows, [SUMS])
    assert other.recommendation.startswith("Of a dozen rows or fewer take a product with the one-hot")


@pytest.mark.parametrize(
    "work",
    [
        ("aten::_index_put_impl_", "[[16, 64], [], [16, 64], [], []]", 20),
        ("aten::index_add_", "[[16, 64], [], [], [65536, 64], []]", 20),
        ("aten::index_add_", "[[4096, 64], [], [65536], [65536, 64], []]", 20),
        ("aten::index_add_", None, 20),
        ("aten::index_copy_", "[[16, 64], [], [65536], [65536, 64], []]", 20),
        (*SUMS[:2], 4),
    ],
    ids=["as many as there are", "an index of unknown shape", "many rows", "no shapes", "no sum", "a small part"],
)
def test_other_sums_are_no_news(work):
    assert not found(sums_on_few_rows, [work])


def test_a_product_with_one_hot_rows_is_a_look_up():
    (one,) = found(one_hot_products, [*ONE_HOT, PRODUCT])
    assert "multiplies one-hot rows of [1024, 4000] with [4000, 64]" in one.title
    assert "embedding(index" in one.recommendation
    (biased,) = found(one_hot_products, [*ONE_HOT, ("aten::addmm", "[[64], [1024, 4000], [4000, 64]]", 20)])
    assert biased.title == one.title


@pytest.mark.parametrize(
    "work",
    [
        [PRODUCT],
        [*ONE_HOT, ("aten::mm", "[[1024, 4001], [4001, 64]]", 20)],
        [ONE_HOT[0], PRODUCT],
        [*ONE_HOT, (*PRODUCT[:2], 4)],
    ],
    ids=["no one_hot", "another matrix", "scattered otherwise", "a small part"],
)
def test_other_products_are_none(work):
    assert not found(one_hot_products, work)
