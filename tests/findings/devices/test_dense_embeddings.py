"""The rule about gradients of embeddings that are written whole."""

import pytest
from traceanalyzer.findings.devices.kernels import dense_embedding_gradients

from tests.findings.devices.test_recomputing import MS
from tests.findings.devices.test_written_out import results_of

NAMES = ("headline", "steps", "operator_shapes", "calls", "exposed_calls")
LOOK_UP = ("aten::embedding", "[[4000, 64], [10, 100], [], [], []]", 1)
BACKWARD = [
    ("aten::embedding_dense_backward", "[[10, 100, 64], [10, 100], [], [], []]", 2),
    ("aten::fill_", "[[4000, 64], []]", 3),
]
# Half of the elements that it updates are the table's.
UPDATE = ("aten::_foreach_add_", "[[[4000, 64], [4000, 32], [4000, 32]], [[4000, 64], [4000, 32], [4000, 32]], []]", 8)


def found(work, **others):
    results = {**results_of(work, names=NAMES), **others}
    return dense_embedding_gradients(*(results[name] for name in NAMES))


def test_clearing_and_updating_whole_tables():
    (one,) = found([LOOK_UP, *BACKWARD, UPDATE])
    assert one.title == (
        "The gradient of an embedding of [4000, 64] is written whole, though a call looks up 1,000 rows at most: clearing "
        "it and updating by it takes 7 ms of rank 0's GPU time a step, 7 % of a step."
    )
    assert one.gain_ns == 7 * MS


@pytest.mark.parametrize(
    "work",
    [
        [LOOK_UP, *BACKWARD],
        [LOOK_UP, UPDATE, ("aten::fill_", "[[4000, 64], []]", 40)],  # it is sparse, or does not learn
        [("aten::embedding", "[[4000, 64], [10, 101]]", 1), *BACKWARD, UPDATE],
        [("aten::embedding", None, 1), ("aten::embedding_dense_backward", None, 40)],
    ],
)
def test_other_updates_are_none(work):
    assert not found(work)
