"""In which phases a collective's calls lie is counted where they are all of one element type."""

from types import SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.report.comparison.sentences import _phases

TWO_PHASES = [("broadcast", "forward", 2.0), ("broadcast", "backward", 1.0), ("all_reduce", "backward", 3.0)]


@pytest.mark.parametrize(
    ("rows", "is_one", "said"),
    [
        (TWO_PHASES, True, " (1 in backward, 2 in forward)"),
        (TWO_PHASES, False, ""),
        ([("broadcast", "forward", 2.0)], True, " (2 in forward)"),
        ([("broadcast", "forward", 2.0)], False, " (in forward)"),
        ([("broadcast", "unattributed", 2.0)], False, ""),
    ],
)
def test_calls_of_two_element_types_are_not_counted_together(rows, is_one, said):
    frame = pd.DataFrame(rows, columns=["collective", "phase", "other_calls"]).assign(base_calls=pd.NA)
    comparison = SimpleNamespace(table=lambda _run, _name: SimpleNamespace(frame=frame))
    assert _phases(comparison, "other", "broadcast", is_one=is_one) == {"base": "", "other": said}
