"""Calls for GPU memory inside steps."""

from tests.findings.test_exposed_copies import found


def test_calls_for_memory_in_every_step():
    (one,) = found("allocation stalls all", "allocator_retries")
    assert one.headline == "CPU-bound: allocating GPU memory takes 15.0 ms/step."
    assert one.why == "The caching allocator holds no block that fits: 18 cudaMalloc in the recorded steps."
    assert one.fix.endswith("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.")
    assert one.leads
    assert not one.ranks


def test_steps_without_such_calls_say_nothing():
    assert not found("pictures from pageable memory", "allocator_retries")
