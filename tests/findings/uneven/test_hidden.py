"""What is told behind the first cause, of stages' own work, and of exchanges that nobody needs."""

from dataclasses import replace

import pandas as pd
import pytest

from tests.findings.needed import needed_by
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import accumulating, models, pipelines
from traceanalyzer.findings.communication.redundant import redundant_exchanges
from traceanalyzer.findings.pipelines import outside_microbatches
from traceanalyzer.findings.stragglers.stragglers import late_ranks
from traceanalyzer.findings.uneven.hidden import hidden_late

MS = 1_000_000
_NEEDED = ("headline", "steps", "idle", "step_needs", "what_ran", "episodes", "replay")

LOADER = Fault("data", 8 * MS, (2,))
PRODUCTS = Fault("compute", 2 * MS, (1,))


_OF_LATENESS = needed_by(late_ranks)


@pytest.mark.parametrize(
    ("faults", "is_said"),
    [((LOADER, PRODUCTS), True), ((LOADER,), False), pytest.param((PRODUCTS,), False, marks=pytest.mark.thorough)],
)
def test_a_second_straggler_is_told_by_what_it_costs_once_the_first_is_mended(faults, is_said):
    _, results = analysed(accumulating.accumulating(faults=faults), *_NEEDED, *_OF_LATENESS)
    first, *hidden = late_ranks(**{name: results[name] for name in _OF_LATENESS})
    assert "Hidden" not in first.title
    assert len(hidden) == is_said
    for item in hidden:
        assert item.title.startswith("Rank 1 computes")
        assert "aten::mm" in item.title
        assert "Hidden behind rank 2's loader now; with that mended, it costs 1." in item.title
        assert item.part_of == first.about
        assert item.gain_ns < MS / 10
    assert not hidden_late(**{name: results[name] for name in _NEEDED})


def test_ranks_that_hide_each_other_are_told_together():
    faults = (Fault("compute", 3 * MS, (1,)), Fault("data", 3 * MS, (2,)))
    _, results = analysed(accumulating.accumulating(faults=faults), *_OF_LATENESS)
    both, behind = late_ranks(**{name: results[name] for name in _OF_LATENESS})
    assert both.ranks == (1, 2)
    assert set(both.cause.split(" and ")) == {"compute", "data"}
    assert "the two hide each other. Mended together, a mean step is " in both.title
    assert both.gain_ns == pytest.approx(3 * MS, rel=0.05)
    assert all(own["gain_ns"] < MS / 2 for own in results["episodes"].rows())
    assert behind.part_of == both.about
    first = both.recommendation.split(". ")[0]
    assert first.endswith(": one alone gains less than half of it"), "the sentence that stands on top of the page"
    assert "oad ahead on rank 2" in first
    assert "ind what takes rank 1 longer in aten::mm" in first
    assert both.recommendation.count("oad ahead on rank 2") == 1
    assert both.recommendation.count("ind what takes rank 1 longer in aten::mm") == 1


@pytest.mark.parametrize(("latest", "begins"), [("1", "Rank 1 computes"), ("2", "Rank 2 waits for its data")])
def test_of_ranks_that_hide_each_other_the_latest_is_said_first(latest, begins):
    faults = (Fault("compute", 3 * MS, (1,)), Fault("data", 3 * MS, (2,)))
    _, results = analysed(accumulating.accumulating(faults=faults), *_OF_LATENESS)
    table = results["episodes"].table
    costs = table["cost_ns"].where(table["ranks"].astype("str") != latest, 10 * table["cost_ns"])
    episodes = replace(results["episodes"], table=table.assign(cost_ns=costs))
    both, *_ = late_ranks(**({name: results[name] for name in _OF_LATENESS} | {"episodes": episodes}))
    assert both.title.startswith(begins)
    assert "the two hide each other" in both.title


@pytest.mark.parametrize(("ns", "is_said"), [(3 * MS, True), (0, False)])
def test_what_a_stage_computes_before_its_first_microbatch(ns, is_said):
    faults = (Fault("compute", ns, (0,)),) if ns else ()
    _, results = analysed(pipelines.pipeline_with_extra(faults=faults), "pipeline", "what_ran", "replay")
    found = outside_microbatches(**results)
    assert [(item.ranks, "aten::mm of [8192, 8192]" in item.title) for item in found] == [((0,), True)] * is_said
    assert all(item.gain_ns == pytest.approx(ns, rel=0.05) for item in found)


@pytest.mark.parametrize(("messages", "is_said"), [(12, True), (2, False), (pd.NA, False)])
def test_what_no_microbatch_repeats_is_not_asked_of_one_message_there_and_back(messages, is_said):
    """The number of microbatches is not known where the trace does not tell forward from backward."""
    faults = (Fault("compute", 3 * MS, (0,)),)
    _, results = analysed(pipelines.pipeline_with_extra(faults=faults), "pipeline", "what_ran", "replay")
    table = results["pipeline"].table
    calls = pd.array([messages] * len(table), dtype="Int64") * table["steps"].array
    unknown = type(results["pipeline"])(table.assign(microbatches=pd.NA, p2p_calls=calls))
    found = outside_microbatches(unknown, results["what_ran"], results["replay"])
    assert [item.ranks for item in found] == [(0,)] * is_said


@pytest.mark.parametrize(("job", "is_said"), [(accumulating.redundant_exchanges, True), (models.two_models, False)])
def test_gradients_of_every_micro_step_are_exchanged_once_too_often(job, is_said):
    _, results = analysed(job(steps=3), "headline", "steps", "calls", "micro_steps", "replay")
    found = redundant_exchanges(**results)
    assert len(found) == is_said
    for item in found:
        assert "3 of 4 exchanges are redundant, 9 all-reduces" in item.title
        assert item.gain_ns > MS / 2
