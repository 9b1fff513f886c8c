"""Ranks that send and get nothing back may be no stages of one model."""

import pytest

from tests.findings.needed import needed_by
from tests.simulator import workloads as usual
from tests.simulator.analysed import analysed
from tests.simulator.jobs.serving import prefill_apart
from traceanalyzer.findings.uneven_stages import pipeline_imbalance


@pytest.mark.parametrize(
    ("job", "is_open"),
    [(prefill_apart(1, 1, 4), True), (usual.pipelined(2, 4, 3, stage_ns=(3_000_000, 1_000_000)), False)],
    ids=["prefill and decode", "a pipeline"],
)
def test_layers_are_not_all_that_can_move_where_nothing_comes_back(job, is_open):
    (found,) = pipeline_imbalance(**analysed(job, *needed_by(pipeline_imbalance))[1])
    assert "ove layers from stage 0" in found.recommendation
    assert ("prefill and decode apart" in found.recommendation) is is_open
