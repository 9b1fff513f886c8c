"""What is wrong reaches all that is made from it, by the registry alone."""

import pytest

from traceanalyzer.analyses import ANALYSES, reached_by
from traceanalyzer.analyses.dependencies import with_needed
from traceanalyzer.analyses.integrity.integrity_checks import EVENTS


@pytest.mark.parametrize(
    ("sources", "reached", "spared"),
    [
        (["kernels"], {"kernels", "kernels_over_ranks"}, {"headline", "streams"}),
        (["steps"], {"steps", "headline", "balance", "replay", "what_ifs", "critical_path"}, {"kernels", "memory"}),
        (["calls"], {"nccl", "collective_waits", "stragglers", "pipelines"}, {"headline", "kernels", "cuda_api"}),
        (["tree"], {"operators", "modules", "categories", "efficiency"}, {"breakdown", "kernels"}),
        (["counters"], {"memory", "memory_fit", "gpu_metrics"}, {"headline", "replay", "memory_calls"}),
        (["gpu_ops"], {"operators", "categories", "copies", "mfu", "streams", "modules", "what_ifs"}, {"cuda_api"}),
        ([EVENTS], {*ANALYSES} - {"integrity", "ranks"}, {"integrity", "ranks"}),
        ([], set(), {"headline"}),
    ],
)  # fmt: skip
def test_all_that_rests_on_it_is_reached_and_nothing_else(sources, reached, spared):
    found = set(reached_by(sources))
    assert reached <= found
    assert not spared & found


def test_an_analysis_is_reached_by_all_that_it_needs():
    reached = {one: set(reached_by([one])) for one in {*ANALYSES} - {"integrity", "ranks"}}
    for name in reached:
        needed = [one for one in with_needed([name]) if one in reached]
        assert all(name in reached[one] for one in needed), name
