"""Ranks that have nothing to compute any more."""

import pytest
from traceanalyzer.findings.uneven.balance import ranks_without_work

from tests.simulator import workloads
from tests.simulator.analysed import analysed
from tests.simulator.capture import Capture
from tests.simulator.jobs import data_parallel, replicated_pipelines

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
