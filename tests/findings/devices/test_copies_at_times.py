"""Copies that all ranks make in some steps."""

import pytest
from traceanalyzer.findings.devices.copies import copies_at_times

from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs.sparse import snapshots

MS = 1_000_000
BOTH = (0, 1)


def said(*faults, ranks=2, **limits):
    names = ("headline", "steps", "step_needs", "what_ran", "episodes", "replay")
    _, results = analysed(snapshots(ranks, 6, faults, layers=3), *names)
    return copies_at_times(**results, **limits)


@pytest.mark.parametrize(("ranks", "who"), [(2, "both GPUs copy"), (1, "the GPU copies")])
def test_a_state_that_all_ranks_copy_is_told_with_its_step(ranks, who):
    (found,) = said(Fault("snapshot", 8 * MS, BOTH[:ranks], (3,)), ranks=ranks)
    assert found.steps == (3,)
    assert found.title.startswith(f"In step 3 {who} for 8")
    assert "most of it copy DtoH (device → pinned): " in found.title
    assert found.gain_ns == pytest.approx(8 * MS / 6, rel=0.05)
    assert found.ranks == ()


@pytest.mark.parametrize(
    "fault",
    [
        Fault("snapshot", 8 * MS, (1,), (3,)),  # one rank alone: it is late
        Fault("snapshot", 8 * MS, BOTH, (0, 2, 4)),  # as often as not
        Fault("snapshot", MS // 10, BOTH, (3,)),  # of no weight
    ],
)
def test_what_is_no_work_of_all_ranks_in_few_steps_is_not_said(fault):
    assert not said(fault)
