"""Ranks that exchange with servers alone are no stages."""

import pandas as pd
import pytest

from traceanalyzer.analyses.pipelines.hubs import is_of_hub


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        pytest.param([(0, 3), (1, 3), (2, 3)], [True] * 3, id="one server"),
        pytest.param([(0, 3), (1, 3), (2, 3), (4, 0), (4, 1), (4, 2)], [True] * 6, id="two servers of the same"),
        pytest.param([(0, 3), (1, 3), (2, 3), (2, 4)], [False] * 4, id="one of three exchanges with another, too"),
        pytest.param([(0, 1), (1, 2), (2, 3)], [False] * 3, id="stages"),
    ],
)
def test_messages_of_hubs(pairs, told):
    assert is_of_hub(pd.DataFrame(pairs, columns=["one", "other"])).tolist() == told
