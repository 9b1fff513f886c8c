"""What is told behind the first cause, of stages' own work, and of exchanges that nobody needs."""

import pytest
from traceanalyzer.findings.communication.redundant import redundant_exchanges
from traceanalyzer.findings.stragglers.stragglers import late_ranks

from tests.findings.needed import needed_by
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import accumulating, models

MS = 1_000_000

LOADER = Fault("data", 8 * MS, (2,))


_OF_LATENESS = needed_by(late_ranks)


def test_ranks_that_hide_each_other_are_told_together():
    faults = (Fault("compute", 3 * MS, (1,)), Fault("data", 3 * MS, (2,)))
    _, results = analysed(accumulating.accumulating(faults=faults), *_OF_LATENESS)
    both, behind = late_ranks(**{name: results[name] for name in _OF_LATENESS})
    assert both.ranks == (1, 2)
    assert set(both.cause.split(" and ")) == {"compute", "data"}
    assert "the two hide each other. Mended together, a mean step is " in both.title
    assert both.gain_ns == pytest.approx(3 * MS, rel=0.05)
    assert all(own["gain_ns"] < MS / 2 for own in results["episodes"].rows())
    assert behind.part_of == both.about
    first = both.recommendation.split(". ")[0]
    assert first.endswith(": one alone gains less than half of it"), "the sentence that stands on top of the page"
    assert "oad ahead on rank 2" in first
    assert "ind what takes rank 1 longer in aten::mm" in first
    assert both.recommendation.count("oad ahead on rank 2") == 1
    assert both.recommendation.count("ind what takes rank 1 longer in aten::mm") == 1


@pytest.mark.parametrize(("job", "is_said"), [(accumulating.redundant_exchanges, True), (models.two_models, False)])
def test_gradients_of_every_micro_step_are_exchanged_once_too_often(job, is_said):
    _, results = analysed(job(steps=3), "headline", "steps", "calls", "micro_steps", "replay")
    found = redundant_exchanges(**results)
    assert len(found) == is_said
    for item in found:
        assert "3 of 4 exchanges are redundant, 9 all-reduces" in item.title
        assert item.gain_ns > MS / 2
