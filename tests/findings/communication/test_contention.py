"""Compute that is slower beside communication, told by the same work alone."""

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.jobs import gradients
from traceanalyzer.findings.communication.exposed import contention


@pytest.mark.parametrize(("shapes", "is_told"), [(gradients.SHAPES, True), ("", False)])
def test_kernels_that_may_be_of_other_sizes_are_not_held_against_each_other(shapes, is_told):
    """Without shapes the longer ones beside all-reduces may do more: they have one name and grid with all others."""
    job = gradients.contended(2, 3, shapes=shapes)
    assert bool(contention(**analysed(job, "headline", "steps", "replay")[1])) is is_told
