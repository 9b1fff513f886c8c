"""Ranks of roles, which run different kernels: each is held against those of its own."""

import pytest

from tests.simulator.analysed import analysed, saved_ns
from tests.simulator.faults import Fault
from tests.simulator.jobs import gpus, reinforced

MS = 1_000_000


@pytest.mark.parametrize("more_ns", [0, 4 * MS])
def test_a_generator_is_late_beside_the_other_and_not_because_it_generates(more_ns):
    """Ranks 4 and 5 generate for longer than the others train."""
    faults = (Fault("answer", more_ns, (5,)),) if more_ns else ()
    results = analysed(reinforced.apart(4, faults, answers=60), "episodes", "replay")[1]
    episodes = results["episodes"].table
    told = episodes[["ranks", "cause", "name"]].to_numpy().tolist()
    assert told == ([[(5,), "compute", "paged_attention"]] if more_ns else [])
    gains = [saved_ns(results["replay"], *changes) for changes in episodes["changes"]]
    assert gains == ([pytest.approx(more_ns, rel=0.03)] if more_ns else [])


def test_gpus_of_another_model_are_no_role():
    """Kernels of the same work have other names there; half of the job is late by its GPUs."""
    job = gpus.two_kinds(4, 3, (Fault("alike", 0, (2, 3)),))
    episodes = analysed(job, "episodes")[1]["episodes"].table
    assert episodes[["ranks", "cause"]].to_numpy().tolist() == [[(2, 3), "compute"]]
