"""The rule about loops of launches."""

import pytest
from traceanalyzer.findings.hosts.cpu_work import many_launches

from tests.findings.needed import needed_by
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import turns

_NAMES = tuple(needed_by(many_launches))
_LOOP = (Fault("loop", 0, (0, 1)),)


def found(job, **limits):
    return many_launches(**analysed(job, *_NAMES)[1], **limits)


@pytest.mark.parametrize(
    ("job", "says", "advice", "is_bound"),
    [
        (turns.averaged, "300 operations a step tensor by tensor in a loop of 150 turns", "_foreach_", False),
        (turns.augmented, "240 operations a step in a loop of 48 turns", "stack their tensors", True),
        (turns.picked, "150 operations a step in a loop of 30 turns", "torch.where", True),
    ],
)
def test_a_loop_is_told_with_how_it_is_done_at_once(job, says, advice, is_bound):
    (one,) = found(job(faults=_LOOP))
    assert says in one.title
    assert advice in one.recommendation
    assert ("torch.where" in one.recommendation) is (job is turns.picked)
    assert (one.gain_is_bound, one.is_to_do_first) == (is_bound, True)


def test_few_launches_or_a_small_part_of_a_step_are_no_news():
    job = turns.augmented(faults=_LOOP)
    assert found(job, loop_launches=241) == []
    assert found(job, loop_pct=98.0) == []
    assert found(job, clear_gain_pct=90.0) == []
    assert found(turns.augmented()) == []
