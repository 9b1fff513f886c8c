"""Calls for GPU memory inside steps."""

import pytest

from tests.findings.of_job import said
from tests.findings.test_exposed_copies import found
from tests.simulator.program import Program
from tests.simulator.workloads import job_of, layer_of


def test_calls_for_memory_in_every_step():
    (one,) = found("allocation stalls all", "allocator_retries")
    assert one.headline == "CPU-bound: allocating GPU memory takes 15.0 ms/step."
    assert one.why == "The caching allocator holds no block that fits: 18 cudaMalloc in the recorded steps."
    assert one.fix.endswith("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.")
    assert one.leads
    assert not one.ranks


def test_steps_without_such_calls_say_nothing():
    assert not found("pictures from pageable memory", "allocator_retries")


@pytest.mark.parametrize(
    ("has_steps", "gives_back", "begin"),
    [
        (True, True, "Drop torch.cuda.empty_cache()"),
        (True, False, "Pad to few lengths"),
        (False, False, "Record steps"),
    ],
)
def test_what_is_given_back_tells_the_fix(has_steps, gives_back, begin):
    def step(program: Program, _: int) -> None:
        layer_of(program, "aten::linear", "forward_gemm", 400_000, 20_000)
        program.host(2_000_000, "cudaMalloc", "call")
        if gives_back:
            program.host(2_000_000, "cudaFree", "call")
        layer_of(program, "aten::linear", "forward_gemm", 400_000, 20_000)

    (one,) = said(job_of(1, 4, step, (), (), has_steps=has_steps), "allocator_retries")
    assert one.fix.startswith(begin)
