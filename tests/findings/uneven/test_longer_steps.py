"""Steps in which all ranks run more than in the others."""

from traceanalyzer.findings.uneven.balance import longer_steps

from tests.simulator import workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault

MS = 1_000_000
BOTH = (0, 1)


def said(*faults):
    _, results = analysed(workloads.ddp(2, 7, faults, layers=3), "step_needs", "what_ran")
    return longer_steps(**results)


def test_an_evaluation_of_all_ranks_is_named_with_its_steps():
    (found,) = said(Fault("eval", 4 * MS, BOTH, (2, 5)))
    assert found.steps == (2, 5)
    assert found.title.startswith("In steps 2 and 5 both GPUs compute 3.99 ms a step longer")
    assert "most of it evaluate: " in found.title
    assert found.severity == "medium"
    assert (found.gain_ns, found.ranks) == (None, ())
