"""Uneven compute is said once, by whoever measured it best."""

import pytest
from traceanalyzer.findings.uneven import balance

from tests import once
from traceanalyzer.analyses.blame.episodes import Episodes

NEEDED = (
    "headline", "steps", "step_needs", "episodes", "pipeline", "call_waits", "instances", "efficiency", "replay", "places",
    "ranks", "operators",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "rank", "gain_ms"),
    [
        ("moe", 0, 1.77),  # 6.38 against 2.84 ms a step, 4.61 each if even; waits in its all-to-alls are not known
        ("ddp", None, None),
        pytest.param("ddp_straggler", None, None, marks=pytest.mark.thorough),  # said by the straggler rule
        ("pp", None, None),  # said by the pipeline rule
    ],
)
def test_uneven_compute(name, rank, gain_ms):
    results = once.results(name, NEEDED)
    if name == "moe":  # which `late_ranks` says, where ranks can be compared step by step
        assert balance.uneven_compute(**results) == []
        results["episodes"] = Episodes(results["episodes"].table.iloc[:0])
    found = balance.uneven_compute(**results)
    if rank is None:
        assert found == []
    else:
        finding, products = found
        assert finding.title == (
            "Rank 0 computes 6.39 ms a step, rank 1 only 2.85 ms and sits in all-to-all for 4.59 ms, 60 % of a step, "
            "3.62 ms of it (± 30 µs a call) before the last rank arrives. With rank 0's compute as the mean rank's a mean "
            "step is 1.77 ms shorter."
        )
        assert [row["shapes"] for row in products.evidence[::2]] == [
            "[[11264, 2048], [2048, 8192]]", "[[5120, 2048], [2048, 8192]]",
        ]  # fmt: skip
        assert products.part_of == finding.about
        start, end = finding.interval_ns
        assert 7.6 < (end - start) / 1e6 < 7.7, "a step"
        assert finding.gain_ns / 1e6 == pytest.approx(gain_ms, abs=0.01)
