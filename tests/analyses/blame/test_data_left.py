"""What is left of a late loader's time once it is mended."""

import pytest

from traceanalyzer.analyses.blame.episode_gains import _data_left


@pytest.mark.parametrize(
    ("own_ns", "peers_ns", "loading_left", "left"),
    [
        (50, 0, 0.01, 0.01),  # it alone loads
        (50, 20, 0.0, 0.4),  # what loading takes is not known
        (97, 22, 0.96, 0.96),  # it loads as long, with less of a lead
        (50, 60, 1.2, 1.0),
        (0, 0, 0.5, 0.0),
    ],
)
def test_no_less_is_left_than_the_peers_need_to_load(own_ns, peers_ns, loading_left, left):
    row = {"own_ns": own_ns, "peers_ns": peers_ns, "loading_left": loading_left, "part": "data_ns"}
    assert _data_left(row) == left
