"""Uneven compute is said once, by whoever measured it best."""

import pytest

from tests import once
from tests.simulator import fleet
from tests.simulator.analysed import analysed
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.findings.uneven import balance

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


def test_what_a_capture_without_steps_gains_is_of_the_capture():
    results = once.results("moe", NEEDED)
    results["episodes"] = Episodes(results["episodes"].table.iloc[:0])
    results["headline"] = Headline(results["headline"].table.assign(steps=None))
    finding, _ = balance.uneven_compute(**results)
    assert " a mean step " not in finding.title
    assert "With rank 0's compute as the mean rank's the capture is 1.77 ms shorter." in finding.title
    assert (finding.gain_is_bound, finding.caveat) == (False, None)


def test_a_set_that_computes_alike_is_named_by_its_host():
    _, results = analysed(fleet.job(9, "node", steps=2, layout=fleet.SMALL), *NEEDED)
    results["episodes"] = Episodes(results["episodes"].table.iloc[:0])  # which says it, where waits are known
    (finding,) = balance.uneven_compute(**results)
    assert finding.title.startswith("Ranks 3 to 5 (host b01) compute up to ")
    assert "With their compute as the others' a mean step is " in finding.title
    assert finding.gain_ns == pytest.approx(0.24 * 2 * (1.5e6 + 3e6), rel=0.1), "what their kernels are longer"
