"""Whether a rank began the first recorded step late."""

from types import SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.findings.capture import late_start


class Rows:
    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)


def found(waits, lengths, recorded=0, *, later_ns=60, offset_ns=0):
    """Of two ranks: what they wait in each step, and how long each step is; complete are those from `recorded` on.

    Rank 0 begins each so much later, by its clock, which is ahead of the other's where an offset is known.
    """
    rows = [
        (step, rank, begin_ns, begin_ns + lengths[rank][step], waits[rank][step])
        for rank in (0, 1)
        for step in range(len(waits[0]))
        for begin_ns in [1000 * step + later_ns * (rank == 0)]
    ]
    needs = pd.DataFrame(rows, columns=["step", "rank", "begin_ns", "end_ns", "exposed_wait_ns"])
    complete = needs["step"] >= recorded
    steps = needs[["rank", "step"]].assign(is_complete=complete, is_open=False, is_partial=~complete, window_ns=100)
    clocks = SimpleNamespace(offsets_ns=lambda: {0: offset_ns} if offset_ns else {})
    return late_start(Rows(needs.assign(exposed_unmatched_ns=0)), Rows(steps), clocks)


STEADY = [100] * 4


@pytest.mark.parametrize(
    ("waits", "lengths", "is_said"),
    [
        ([[0] * 4, [60, 5, 5, 5]], [STEADY, [160, 100, 100, 100]], True),
        ([[0] * 4, [54, 5, 5, 5]], [STEADY, [154, 100, 100, 100]], False),  # less than half a step more
        ([[0] * 4, [60] * 4], [STEADY, [160] * 4], False),  # in every step
        ([[0] * 4, [60, 5, 5, 5]], [[115, 100, 100, 100], [160, 100, 100, 100]], False),  # it is late in the step
        ([[0] * 4, [60, 5, 5, 5]], [[110, 100, 100, 100], [160, 100, 100, 100]], True),
        ([[20, 0, 0, 0], [60, 5, 5, 5]], [STEADY, [160, 100, 100, 100]], False),  # all wait
        ([[0] * 11, [105, 0, *[0] * 9]], [[100] * 11, [200, *[100] * 10]], False),  # of many steps one
        ([[0] * 9, [105, 0, *[0] * 7]], [[100] * 9, [200, *[100] * 8]], True),
        ([[0], [60]], [[100], [160]], False),
    ],
)
def test_others_wait_for_it_in_that_step_alone(waits, lengths, is_said):
    titles = [item.title for item in found(waits, lengths)]
    assert bool(titles) == is_said
    if is_said:
        assert titles[0].startswith("In step 0, the first that was recorded, rank 1 waits ")
        assert "longer than later for rank 0, which began it late: what it did before was not recorded." in titles[0]


@pytest.mark.parametrize(("recorded", "is_said"), [(0, True), (1, False)])
def test_what_was_recorded_before_it_is_known(recorded, is_said):
    waits, lengths = [[0] * 5, [60, 60, 5, 5, 5]], [[100] * 5, [160, 160, 100, 100, 100]]
    assert (
        bool(found([own[not recorded :] for own in waits], [own[not recorded :] for own in lengths], recorded))
        == is_said
    )


@pytest.mark.parametrize(
    ("later_ns", "offset_ns", "is_said"),
    [(28, 0, True), (27, 0, False), (0, 0, False), (1028, 1000, True), (1027, 1000, False)],
)
def test_it_began_later_by_the_common_clock(later_ns, offset_ns, is_said):
    """Else it fed the one that waits: what comes first through a pipeline takes its time."""
    waits, lengths = [[0] * 4, [60, 5, 5, 5]], [STEADY, [160, 100, 100, 100]]
    assert bool(found(waits, lengths, later_ns=later_ns, offset_ns=offset_ns)) == is_said
