"""Which operation of a rank is which of another, where streams run in another order."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.replay.same_operation import _numbered


@pytest.mark.parametrize(
    ("launch", "number"),
    [((0, 1, 2), [0, 1, 2]), ((-1, -1, -1), [2, 0, 1]), ((1, 1, 0), [2, 1, 0]), ((-1, 0, 1), [0, 1, 2])],
    ids=["launched in order", "no host", "two by one call", "one before the capture"],
)
def test_operations_of_a_name_are_numbered_in_order_of_launch(launch, number):
    """The first one, on a stream of its own, is held up until the others are done."""
    ops = pd.DataFrame({"step": 1, "start_ns": [30, 10, 20], "launch": launch})
    found = _numbered(ops, np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64))
    assert found[:, -1].tolist() == number
