"""Steps in which all ranks run more than in the others."""

import pytest

from tests.simulator import workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from traceanalyzer.findings.uneven.balance import longer_steps

MS = 1_000_000
BOTH = (0, 1)


def said(*faults):
    _, results = analysed(workloads.ddp(2, 7, faults, layers=3), "step_needs", "what_ran")
    return longer_steps(**results)


def test_stages_that_all_evaluate_in_a_step_are_told_so():
    job = workloads.pipelined(2, 3, 6, (Fault("eval", 20 * MS, BOTH, (2,)),))
    (found,) = longer_steps(**analysed(job, "step_needs", "what_ran")[1])
    assert found.title.startswith(
        "In step 2 both GPUs compute 20.0 ms longer than in the others, most of it evaluate: "
    )


def test_an_evaluation_of_all_ranks_is_named_with_its_steps():
    (found,) = said(Fault("eval", 4 * MS, BOTH, (2, 5)))
    assert found.steps == (2, 5)
    assert found.title.startswith("In steps 2 and 5 both GPUs compute 3.99 ms a step longer")
    assert "most of it evaluate: " in found.title
    assert found.severity == "medium"
    assert (found.gain_ns, found.ranks) == (None, ())


@pytest.mark.parametrize(
    "fault",
    [
        Fault("eval", 4 * MS, (1,), (2,)),  # one rank alone: it is late
        Fault("eval", 4 * MS, BOTH, (0,)),  # the first recorded step
        Fault("eval", 4 * MS, BOTH, (1, 3, 5)),  # as often as not
        Fault("throttle", 0, BOTH, (3,), 2.0),  # as many calls, each longer
    ],
)
def test_what_is_no_more_work_of_all_ranks_in_few_steps_is_not_said(fault):
    assert not said(fault)
