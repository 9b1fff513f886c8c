"""Communication that no compute hides."""

from tests.findings.of_job import said
from tests.simulator import workloads as usual
from tests.simulator.jobs import gradients
from tests.simulator.program import Program
from tests.simulator.workloads import job_of, layer_of


def test_all_reduces_after_backward_are_exposed():
    (found,) = said(gradients.serial(), "exposed_communication")
    assert found.headline == "Exposed all-reduces: 4.52 ms/step."
    assert found.why == "Rank 0's GPU runs no compute during all-reduces: 30 calls per step, 800 kB on average."
    assert found.fix == "Start all-reduces sooner: async_op=True, and wait() only where the result is used."
    assert found.what_if == "analyze-traces what-if FOLDER --collective all_reduce=2x"
    assert found.saves.low_ns < found.saves.likely_ns < found.saves.high_ns < 4_550_000, "no more than all of it"


def test_messages_of_a_pipeline_belong_to_its_bubble():
    assert not said(usual.pipelined(stages=4, microbatches=8, steps=4), "exposed_communication")


def test_exchanges_of_experts_are_overlapped_as_their_library_does():
    def step(program: Program, _: int) -> None:
        layer_of(program, "aten::linear", "forward_gemm", 400_000, 20_000)
        program.kernel("void deep_ep::internode::combine<false, 8>(int)", 300_000)

    (found,) = said(job_of(1, 4, step, (), ()), "exposed_communication")
    assert found.headline.startswith("Exposed expert combines: ")
    assert found.fix == "Overlap dispatch and combine with shared experts or a second micro-batch (DeepEP)."
