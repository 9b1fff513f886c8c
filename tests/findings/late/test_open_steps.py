"""Late ranks in the step that a capture ends in: no mean step holds it."""

import pytest

from tests.findings.needed import needed_by
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import first_times
from traceanalyzer.findings.late.lateness import late_ranks

MS = 1_000_000


@pytest.mark.parametrize(("compiles_ms", "severity"), [(900, "high"), (15, "medium")])
def test_what_takes_half_of_the_recorded_time_is_as_grave_as_that(compiles_ms, severity):
    """The last of six steps compiles: for far longer than the others take together, or not."""
    job = first_times.compiled(2, faults=(Fault("compile", compiles_ms * MS, (1,), (5,)),))
    _, results = analysed(job, *needed_by(late_ranks))
    (found,) = late_ranks(**results)
    assert (found.ranks, found.steps, found.gain_ns, found.severity) == ((1,), (5,), None, severity)
    assert "compiling by torch.compile" in found.title
