"""What the page says of host events that it does not draw."""

import pytest

from traceanalyzer.report.timeline import note


@pytest.mark.parametrize(
    ("held", "ranks", "said"),
    [
        (10, range(2), ""),
        (9, range(2), "Of 10 host events the 9 longest are drawn: all above 3 µs."),
        (10, [1], "The host is drawn of rank 1."),
        (10, [57, 56, 58], "The host is drawn of ranks 56 to 58."),
    ],
)
def test_what_is_left_out_is_said(held, ranks, said):
    assert note(held, 10, 3_100, list(ranks), 2 if len(ranks) < 3 else 64) == said
