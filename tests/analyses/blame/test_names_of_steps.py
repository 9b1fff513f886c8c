"""Which name a rank's late steps have in common."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.naming import _agreed

MM = ("operator", "aten::mm")
NONE = (None, None)


@pytest.mark.parametrize("part", ["compute_ns", "host_ns"])
@pytest.mark.parametrize(
    ("excess_ns", "expected"),
    [
        ((10, 11, 12, 10, 11), [NONE] * 5),
        ((10, 11, 12, 40, 41), [NONE, NONE, NONE, MM, MM]),  # of another size: another thing
    ],
)
def test_what_most_late_steps_have_no_name_for_has_none(part, excess_ns, expected):
    cells = pd.DataFrame({"rank": 4, "part": part, "excess_ns": excess_ns})
    assert _agreed(cells, [{}, {}, {}, {MM: 6.0}, {MM: 7.0}]) == expected
