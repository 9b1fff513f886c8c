"""What is said of captures without a complete step: of the capture, never of a step."""

import re
from dataclasses import replace

import pytest

from tests.simulator import spoiled
from tests.simulator.cases import EVERY_CASE
from tests.simulator.scoreboard import report_of

_OF_STEPS = re.compile(r"\b(a|an?|the|mean|each|every|per|one) steps?\b|\bsteps? \d")

BY_NAME = {case.name: case for case in EVERY_CASE}


def _rules(name, spoil, ranks):
    """The rules that speak, none of them of a step."""
    report = report_of(replace(BY_NAME[name], spoil=spoil(*range(ranks))))
    assert report.results["headline"].table["steps"].isna().all()
    every = [each for finding in report.findings for each in (finding, *finding.also)]
    assert [each.title for each in every if _OF_STEPS.search(each.title)] == []
    return {each.rule for each in every} - {"no_complete_step"}


@pytest.mark.parametrize(
    ("name", "ranks", "rules"),
    [
        ("rows picked by a mask for each class", 2, {"host_bound", "many_launches", "synchronising_calls"}),
        ("one stage of four recomputes", 4, {"pipeline_imbalance", "recomputed_activations"}),
        ("drafted on one rank", 4, {"many_small_collectives"}),
        pytest.param("swapped in from disks, a slower one", 4, {"late_ranks"}, marks=pytest.mark.thorough),
        pytest.param("one pipeline edge at half rate", 4, {"low_bandwidth"}, marks=pytest.mark.thorough),
        pytest.param("two kinds of GPUs, batches alike", 8, {"other_gpus"}, marks=pytest.mark.thorough),
        pytest.param("the network of one data group", 8, {"little_overlap"}, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("spoil", [spoiled.without_steps])
def test_without_a_complete_step_nothing_is_said_of_steps(name, ranks, rules, spoil):
    assert rules <= _rules(name, spoil, ranks)
