"""Ranks of roles, which run different kernels: each is held against those of its own."""

from dataclasses import replace

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import gpus, other_models, reinforced, two_models, unlike_ranks
from tests.simulator.noise import like_hosts
from traceanalyzer.analyses.blame.rank_sets import with_roles
from traceanalyzer.analyses.blame.step_budget import OF_DATA

MS = 1_000_000


@pytest.mark.parametrize("more_ns", [0, 4 * MS])
def test_a_generator_is_late_beside_the_other_and_not_because_it_generates(more_ns):
    """Ranks 4 and 5 generate for longer than the others train."""
    faults = (Fault("answer", more_ns, (5,)),) if more_ns else ()
    episodes = analysed(reinforced.apart(4, faults, answers=60), "episodes")[1]["episodes"].table
    told = episodes[["ranks", "cause", "name"]].to_numpy().tolist()
    assert told == ([["5", "compute", "paged_attention"]] if more_ns else [])
    assert episodes["gain_ns"].tolist() == ([pytest.approx(more_ns, rel=0.03)] if more_ns else [])


def test_gpus_of_another_model_are_no_role():
    """Kernels of the same work have other names there; half of the job is late by its GPUs."""
    job = gpus.two_kinds(4, 3, (Fault("alike", 0, (2, 3)),))
    episodes = analysed(job, "episodes")[1]["episodes"].table
    assert episodes[["ranks", "cause"]].to_numpy().tolist() == [["2,3", "compute"]]


@pytest.mark.parametrize(
    ("job", "fault", "told"),
    [
        # The others train for longer than the last rank evaluates.
        (unlike_ranks.evaluated_apart, None, []),
        (unlike_ranks.evaluated_apart, Fault("host", 5 * MS, (1,)), [["1", "host", "train.py(88): log_metrics"]]),
        # Of two models that score one is held up by its host, which no other rank has kernels of.
        (unlike_ranks.models_apart, Fault("rules", 6 * MS, (6,)), [["6", "host", "rewards.py(77): score_rules"]]),
        # The last rank saves for longer than a step, and is done before it is asked again.
        (unlike_ranks.saved_by_a_rank, None, []),
    ],
)
def test_a_rank_with_a_role_of_its_own_is_no_measure(job, fault, told):
    made = job(steps=4, faults=(fault,) if fault else (), noise=like_hosts(5))
    found = analysed(made, "episodes")[1]["episodes"].table
    assert found[["ranks", "cause", "name"]].to_numpy().tolist() == told
    assert found["gain_ns"].tolist() == ([pytest.approx(fault.ns, rel=0.25)] if fault else [])


@pytest.mark.parametrize(
    ("job", "told"),
    [
        # Kernels of other names for the same work, as those of another precision.
        (replace(gpus.two_kinds(2, 2), gpus=()), ["all"]),
        (unlike_ranks.evaluated_apart(2, 2), ["role of rank 0", "role of rank 2"]),
        # Attention written out: more operators, and most of the others' as well.
        (other_models.distilled(2, 2, (Fault("math", 0, (1,)),)), ["all"]),
        # They take part in the same two collectives.
        (two_models.one_learner(2, 2), ["role of rank 0", "role of rank 1"]),
    ],
)
def test_one_that_computes_otherwise_and_communicates_alike_has_peers(job, told):
    names = ("replay", "ranks", "call_waits", "operators")
    results = analysed(job, "step_needs", *names)[1]
    needs = with_roles(results["step_needs"].table, *(results[name] for name in names))
    assert sorted(needs["peers"].unique()) == told


def test_one_alone_is_held_against_its_own_steps():
    """In one step it evaluates for longer than in the others, and than the others train."""
    made = unlike_ranks.evaluated_apart(steps=4, faults=(Fault("evaluate", 14 * MS, (4,), (2,)),), noise=like_hosts(5))
    found = analysed(made, "episodes")[1]["episodes"].table
    assert found[["ranks", "cause", "numbers"]].to_numpy().tolist() == [["4", "compute", "2"]]


def test_a_decoder_is_not_decoding():
    """What a model's decoder computes depends on no data, as its encoder's does not: a slower GPU is told."""
    names = ["decoder_gemm", "decode_attention", "BatchDecodeWithPagedKVCache"]
    assert [OF_DATA.search(name) is not None for name in names] == [False, True, True]
