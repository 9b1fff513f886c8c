"""In which steps a rank loses most of what it loses."""

import pandas as pd
import pytest

from traceanalyzer.findings.basis import Basis
from traceanalyzer.findings.worst import few_steps

BASIS = Basis(5, (1, 2, 3, 4, 5), pd.Series({0: 500}))


@pytest.mark.parametrize(
    ("lost", "steps", "share_pct"),
    [
        ([4, 2, 90, 1, 3, 2], (3,), 15.0),
        ([20, 7, 5, 1, 0, 99], (6,), 16.5),  # the last complete step's window ends in the step after it
        ([20, 7, 5, 1, 0, 9500], (6,), 95.0),  # which may be longer than all others together
        ([50, 2, 3, 60, 2, 1], (1, 4), 110 / 6),
        ([10, 12, 9, 11, 10, 10], None, None),
        ([50, 2, 60, 2, 55, 1], None, None),  # half of them
    ],
)
def test_few_steps_hold_most_of_it(lost, steps, share_pct):
    """Of six steps of 100 ns, the last of which is as long as what is lost in it, if that is more."""
    lengths = [100] * 5 + [max(100, lost[-1])]
    begins = [sum(lengths[:place]) for place in range(6)]
    table = pd.DataFrame({"rank": 0, "step": range(1, 7), "is_partial": False, "host_ns": lost, "begin_ns": begins})
    found = few_steps(_Sized(table.assign(end_ns=table["begin_ns"] + lengths)), BASIS, 0, "host_ns")
    assert (found and found.steps) == steps
    assert (found and found.share_pct) == (share_pct if share_pct is None else pytest.approx(share_pct))


class _Sized:
    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)
