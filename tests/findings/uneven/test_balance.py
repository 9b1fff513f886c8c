"""Uneven compute is said once, by whoever measured it best."""

import pandas as pd
import pytest

from tests import once
from tests.simulator import fleet
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import rollouts
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.findings.chance import is_beyond_chance, variance_within
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
            "Rank 0 computes 6.38 ms a step, rank 1 only 2.84 ms and sits in all-to-all for 4.58 ms, 60 % of a step, "
            "3.61 ms of it (± 30 µs a call) before the last rank arrives. With rank 0's compute as the mean rank's a mean "
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


def test_of_all_ranks_of_a_role_it_cannot_be_told_whether_they_are_slow():
    _, results = analysed(rollouts.actors_and_learners(faults=(Fault("act", 5_000_000, (2, 3)),)), *NEEDED)
    (finding, _) = balance.uneven_compute(**results)
    assert finding.caveat.startswith("No other rank runs the kernels of ranks 2 and 3: whether they are slow at them")


def test_a_set_that_computes_alike_is_named_by_its_host():
    _, results = analysed(fleet.job(9, "node", steps=2, layout=fleet.SMALL), *NEEDED)
    results["episodes"] = Episodes(results["episodes"].table.iloc[:0])  # which says it, where waits are known
    (finding,) = balance.uneven_compute(**results)
    assert finding.title.startswith("Ranks 3 to 5 (host b01) compute up to ")
    assert "With their compute as the others' the step is " in finding.title
    assert finding.gain_ns == pytest.approx(0.24 * 2 * (1.5e6 + 3e6), rel=0.1), "what their kernels are longer"


@pytest.mark.parametrize(
    ("steps", "ranks", "expected"),
    [
        ([(60, 58, 49, 48), (52, 55, 50, 49), (51, 50, 49, 47)], [0, 1], False),  # no step alike
        ([(60, 59, 49, 48), (60, 61, 49, 50), (61, 60, 50, 49)], [0, 1], True),
        ([(60, 50, 49, 48), (49, 55, 50, 49)], [0], False),
        ([(60, 50, 49, 48), (61, 50, 50, 49)], [0], True),
        ([(60, 59, 49, 48)], [0, 1], True),  # one step tells nothing
    ],
)
def test_a_set_of_ranks_is_held_against_chance(steps, ranks, expected):
    assert is_beyond_chance(pd.DataFrame(steps, dtype="float64"), ranks) == expected


def test_one_of_many_is_held_against_how_far_all_of_them_lie_apart():
    first = pd.DataFrame([(46, 34), (46, 34), (46, 34), (46, 34)], dtype="float64")  # by chance alike in four steps
    other = pd.DataFrame([(46, 34), (34, 46), (46, 34), (34, 46)], dtype="float64")
    assert variance_within([first]) == 0
    assert variance_within([first, other]) == variance_within([other]) / 2
    assert is_beyond_chance(first, [0])
    assert not is_beyond_chance(first, [0], variance_within([first, other]))
    close = pd.DataFrame([(10.0, 5.7), (10.2, 5.9), (9.8, 5.5)])
    assert is_beyond_chance(close, [0], variance=2.0)
    assert not is_beyond_chance(close, [0], variance=2.0, asked=100)
