"""Of ranks that exchange nothing a slower GPU is named, and not where all wait in kernels that nobody knows."""

import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.findings.uneven.slower_gpus import slower_alone

US = 1_000


def rank(number, *, kernel_us, step_us):
    """Three steps of four kernels each."""
    starts = [step * step_us + 60 * place for step in range(4) for place in range(4)]
    ops = [("gemm", start * US, (start + kernel_us) * US, place) for place, start in enumerate(starts, 1)]
    made = [("cudaLaunchKernel", (start - 5) * US, (start - 3) * US) for start in starts]
    marks = [(f"ProfilerStep#{step}", (step * step_us - 8) * US, ((step + 1) * step_us - 8) * US) for step in range(4)]
    return host_trace(ops, made, ranges=marks, rank=number)


@pytest.mark.parametrize(
    ("step_us", "told"),
    [(400, []), (440, [(0,)])],
    ids=["all steps are as long", "its own steps are longer"],
)
def test_a_slower_gpu_of_ranks_that_exchange_nothing(step_us, told):
    ranks = [rank(0, kernel_us=45, step_us=step_us), *(rank(each, kernel_us=35, step_us=400) for each in (1, 2))]
    results = run(ranks, ["headline", "step_needs", "what_ran"])
    found = slower_alone(results["headline"], results["step_needs"], results["what_ran"])
    assert [item.named for item in found] == told
    for item in found:
        assert "same kernels take 1.29 times as long as on the others (180 µs" in item.title.replace("\u202f", " ")
