"""Uneven compute is said once, by whoever measured it best."""

import pytest

from tests.samples import sample
from traceanalyzer.analyses import run
from traceanalyzer.findings import balance


@pytest.mark.parametrize(
    ("name", "rank", "cost_ms"),
    [
        ("moe", 0, 3.54),  # 6.38 against 2.84 ms a step: nobody can measure waits in its uneven all-to-alls
        ("ddp", None, None),
        ("ddp_straggler", None, None),  # said by the straggler rule
        ("pp", None, None),  # said by the pipeline rule
    ],
)
def test_uneven_compute(name, rank, cost_ms):
    results = run(sample(name).ranks, ["headline", "steps", "stragglers", "pipeline"])
    found = balance.uneven_compute(*results.values())
    if rank is None:
        assert found == []
    else:
        (finding,) = found
        assert finding.title.startswith(f"Rank {rank} computes")
        assert finding.cost_ns / 1e6 == pytest.approx(cost_ms, abs=0.01)
