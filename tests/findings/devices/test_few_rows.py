"""Rules about sums by index, and products with one-hot rows."""

from traceanalyzer.findings.devices.kernels import one_hot_products, sums_on_few_rows

from tests.findings.devices.test_recomputing import MS
from tests.findings.devices.test_written_out import results_of

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


def test_a_product_with_one_hot_rows_is_a_look_up():
    (one,) = found(one_hot_products, [*ONE_HOT, PRODUCT])
    assert "multiplies one-hot rows of [1024, 4000] with [4000, 64]" in one.title
    assert "embedding(index" in one.recommendation
    (biased,) = found(one_hot_products, [*ONE_HOT, ("aten::addmm", "[[64], [1024, 4000], [4000, 64]]", 20)])
    assert biased.title == one.title
