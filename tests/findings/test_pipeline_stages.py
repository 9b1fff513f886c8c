"""Stages of a pipeline that compute more than the others."""

from tests.findings.of_job import said
from tests.simulator import workloads as usual
from tests.simulator.jobs import pipelines


def test_the_stage_with_the_vocabulary_computes_most():
    (found,) = said(pipelines.with_loss(), "pipeline_stages")
    assert found.headline == "Uneven pipeline stages: stage 3 computes 1.26× the others."
    assert found.why == "Rank 3 computes 15.3 ms/step, the other stages 12.1 ms on average, and they wait for it."
    assert found.fix == "Move layers from stage 3 to the others; embedding, head and loss count as layers."
    assert found.what_if == "analyze-traces what-if FOLDER --stage even"
    assert found.named == (3,)
    assert not found.ranks  # a heavy stage is no straggler


def test_even_stages_are_nothing():
    assert not said(usual.pipelined(stages=4, microbatches=8, steps=4), "pipeline_stages")
