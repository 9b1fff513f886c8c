"""Few rows of large tables, treated as if they were all of them."""

import pytest

from tests.findings.one_gpu import found

LOOK_UP = ("aten::embedding", "[[4000, 64], [10, 100], [], [], []]", 1)
BACKWARD = [
    ("aten::embedding_dense_backward", "[[10, 100, 64], [10, 100], [], [], []]", 2),
    ("aten::fill_", "[[4000, 64], []]", 9),
]


@pytest.mark.parametrize(
    ("work", "headline", "why"),
    [
        (
            [LOOK_UP, *BACKWARD],
            "Dense embedding gradients: 9 ms/step of GPU time.",
            "Few rows are looked up, but clearing gradients and the update pass over all of them, mostly in aten::fill_ of [4000, 64].",
        ),
        (
            [("aten::index_add_", "[[8, 64], [], [4096], [4096, 64]]", 30)],
            "Sums by index into few rows: 30 ms/step of GPU time.",
            "Additions into the same row wait for each other, mostly in aten::index_add_ of [8, 64].",
        ),
        (
            [("aten::one_hot", "[[64], []]", 1), ("aten::scatter_", "[[64, 10], [], [], []]", 1), ("aten::mm", "[[64, 10], [10, 128]]", 30)],
            "Products with one-hot matrices: 30 ms/step of GPU time.",
            "Each product only picks rows of the other matrix, mostly in aten::mm of [64, 10].",
        ),
    ],
    ids=["gradients", "sums", "one-hot"],
)  # fmt: skip
def test_few_rows_of_many(work, headline, why):
    (one,) = found("sparse_as_dense", work)
    assert (one.headline, one.why) == (headline, why)
    assert one.leads


@pytest.mark.parametrize(
    "work",
    [
        [("aten::embedding", "[[1500, 64], [10, 100]]", 1), BACKWARD[0], ("aten::fill_", "[[1500, 64], []]", 9)],
        [LOOK_UP, *BACKWARD, ("aten::mm", "[[1000, 64], [64, 4000]]", 9)],  # the table is the last layer's weight, too
        [("aten::index_add_", "[[800, 64], [], [4096], [4096, 64]]", 30)],
        [("aten::mm", "[[64, 10], [10, 128]]", 30)],
    ],
    ids=["many rows", "tied", "many sums", "no one-hot"],
)
def test_dense_work_is_dense(work):
    assert not found("sparse_as_dense", work)
