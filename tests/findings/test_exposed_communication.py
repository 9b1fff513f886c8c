"""Communication that no compute hides."""

from tests.findings.of_job import said
from tests.simulator import workloads as usual
from tests.simulator.jobs import gradients


def test_all_reduces_after_backward_are_exposed():
    (found,) = said(gradients.serial(), "exposed_communication")
    assert found.headline == "Exposed all-reduces: 4.52 ms/step."
    assert found.why == "Rank 0's GPU runs no compute during all-reduces."
    assert found.fix == "Start all-reduces sooner: async_op=True, and wait() only where the result is used."
    assert found.what_if == "analyze-traces what-if FOLDER --collective all_reduce=2x"
    assert found.saves.low_ns < found.saves.likely_ns < found.saves.high_ns < 4_550_000, "no more than all of it"


def test_messages_of_a_pipeline_belong_to_its_bubble():
    assert not said(usual.pipelined(stages=4, microbatches=8, steps=4), "exposed_communication")
