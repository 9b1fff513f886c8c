"""In which steps a rank loses most of what it loses."""

import pandas as pd
import pytest

from traceanalyzer.findings.basis import Basis
from traceanalyzer.findings.worst import few_steps

BASIS = Basis(5, (1, 2, 3, 4, 5), pd.Series({0: 500}))


@pytest.mark.parametrize(
    ("lost", "steps", "mean_ns"),
    [
        ([4, 2, 90, 1, 3, 2], (3,), 90.0),
        ([20, 7, 5, 1, 0, 99], (6,), 99.0),  # the last complete step's window ends in the step after it
        ([50, 2, 3, 60, 2, 1], (1, 4), 55.0),
        ([10, 12, 9, 11, 10, 10], None, None),
        ([50, 2, 60, 2, 55, 1], None, None),  # half of them
    ],
)
def test_few_steps_hold_most_of_it(lost, steps, mean_ns):
    table = pd.DataFrame({"rank": 0, "step": range(1, 7), "is_partial": False, "host_ns": lost})
    found = few_steps(_Sized(table), BASIS, 0, "host_ns")
    assert (found and (found.steps, found.mean_ns)) == (steps and (steps, mean_ns))


class _Sized:
    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)
