"""Ranks that have nothing to compute any more."""

import pytest

from tests.simulator import Group, workloads
from tests.simulator.analysed import analysed
from tests.simulator.capture import Capture
from tests.simulator.jobs import data_parallel, replicated_pipelines
from traceanalyzer.findings.uneven.balance import ranks_without_compute, ranks_without_work

NEEDED = ("steps", "call_waits")
MS = 1_000_000


def test_a_rank_whose_input_runs_out_is_named_with_the_step_from_which_on_and_what_it_still_does():
    _, results = analysed(data_parallel.joined(steps=7, spent=3, runs_out=4), *NEEDED)
    (found,) = ranks_without_work(**results)
    said = (
        "Rank 3 computes nothing from step 4 on: for 18.9 ms it takes part in the others' collectives alone (27 calls)"
    )
    assert found.title.startswith(said)
    assert found.ranks == ()  # nobody waits for it
    assert ranks_without_work(**results, without_work_pct=-1.0) == []


@pytest.mark.parametrize(
    ("job", "how"),
    [
        pytest.param(workloads.ddp(4, 5), Capture(), marks=pytest.mark.thorough),
        (workloads.ddp(4, 6), Capture(end_ns={3: 25 * MS})),  # its recording ends halfway
        (data_parallel.joined(steps=5, runs_out=5), Capture()),
        (replicated_pipelines.unlike_stages(steps=3, data=1), Capture()),
    ],
    ids=["all work", "recorded for less long", "input to the end", "a pipeline"],
)
def test_ranks_that_work_to_the_end_or_are_not_recorded_to_it_are_none(job, how):
    _, results = analysed(job, *NEEDED, how=how)
    assert ranks_without_work(**results) == []


def onlookers(ranks, onlooker, *, sends=False):
    """Ranks that compute and reduce, and one that only reduces, or is only sent to."""
    world = Group("0", tuple(range(ranks)))

    def step(program, _number):
        for _ in range(4):
            after = () if program.rank == onlooker else (program.kernel("gemm", MS),)
            if not sends:
                program.collective("all_reduce", world, 4_000_000, MS // 10, after=after)
            elif program.rank == onlooker:
                program.exchange(world, 4_000_000, MS // 10, receives=(0,))
            elif program.rank == 0:
                program.exchange(world, 4_000_000, MS // 10, sends=(onlooker,), after=after)

    return workloads.job_of(ranks, 4, step, (world,))


def test_a_rank_that_only_takes_part_in_all_steps_is_named():
    _, results = analysed(onlookers(3, 2), "headline", "steps", "call_waits")
    (found,) = ranks_without_compute(**results)
    assert found.title.startswith("Rank 2 computes next to nothing (0 ns a step, others 4.00 ms)")
    assert ranks_without_compute(**results, without_work_pct=-1.0) == []
    assert ranks_without_compute(**results, as_many_calls_pct=101.0) == []


@pytest.mark.parametrize("job", [workloads.ddp(4, 5), onlookers(3, 2, sends=True)], ids=["all work", "a receiver"])
def test_ranks_that_compute_or_receive_messages_are_none(job):
    _, results = analysed(job, "headline", "steps", "call_waits")
    assert ranks_without_compute(**results) == []
