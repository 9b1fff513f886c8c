"""The graph gives back what was recorded, and a change gives what the job would do."""

import dataclasses
from functools import cache

import numpy as np
import pytest

from tests import once
from tests.conftest import sampled
from tests.samples import RUNS
from tests.simulator import run, scenarios
from tests.simulator.analysed import analysed, saved_ns, steps_of
from traceanalyzer.analyses.replay.changes import Change

RANK_1 = frozenset({1})
MS = 1_000_000


def quiet(job):
    return dataclasses.replace(job, jitter=0.0, end_jitter_ns=0)


def step_ns(truth):
    """Mean length of the job's steps, by its truth: from when the last rank begins the first one to the last one's end."""
    steps = [
        [event.start_ns for event in host if event.name.startswith("ProfilerStep#")] for host in truth.host.values()
    ]
    end = max(op.end_ns for ops in truth.ops.values() for op in ops)
    return (end - max(min(own) for own in steps)) / len(steps[0])


def deviations(job):
    """How far each run of operations ends from its recorded end when nothing is changed."""
    times = job.replay(job.recorded)[:, 0]
    for rank, nodes in job.nodes.items():
        ops = nodes.piece.ops
        recorded = (ops["start_ns"] + ops["duration_ns"]).to_numpy()[nodes.last] - job.origin_ns - job.offset_ns[rank]
        yield int(np.abs(times[job.node(rank, nodes.end_node[nodes.last])] - recorded).max())


@pytest.mark.parametrize("run_name", RUNS)
def test_a_replay_without_a_change_gives_back_the_recording(run_name):
    replay = once.results(run_name)["replay"]
    assert set(deviations(replay.engine.job)) == {0}
    assert replay.to_frame()["error_pct"].abs().max() < 3


CHANGES = {
    "slow compute": (
        scenarios.ddp(4, slow_compute_ns={1: 300_000}), scenarios.ddp(4), Change("rank", "peers", RANK_1),
    ),
    "slow host": (scenarios.ddp(4, slow_host_ns={1: 900_000}), scenarios.ddp(4), Change("rank", "peers", RANK_1)),
    "the host alone": (scenarios.ddp(4, slow_host_ns={1: 900_000}), scenarios.ddp(4), Change("cpu", "peers", RANK_1)),
    "an extra kernel": (
        scenarios.ddp(4, slow_compute_ns={1: 300_000}), scenarios.ddp(4), Change("kernel", 0.0, name="extra_gemm"),
    ),
    "slow data": (scenarios.fed(4, slow_data_ns={1: 5 * MS}), scenarios.fed(4), Change("rank", "peers", RANK_1)),
    "slow copy": (scenarios.fed(4, slow_copy_ns={1: 5 * MS}), scenarios.fed(4), Change("copy", "peers", RANK_1)),
    "hybrid sharding": (scenarios.hsdp(slow_compute_ns={1: 90_000}), scenarios.hsdp(), Change("rank", "peers", RANK_1)),
    "a slow stage": (
        scenarios.pipeline(4, slow_compute_ns={2: 200_000}), scenarios.pipeline(4), Change("rank", "peers", frozenset({2})),
    ),
    "a slow node": (
        scenarios.ddp(8, slow_compute_ns=dict.fromkeys(range(4, 8), 300_000)), scenarios.ddp(8),
        Change("rank", "peers", frozenset(range(4, 8))),
    ),
    "in turn": (scenarios.ddp(4, steps=6, in_turn_ns=4 * MS), scenarios.ddp(4, steps=6), Change("rank", "peers")),
}  # fmt: skip


UNTOLD = (("hybrid sharding", "nsys"), ("a slow stage", "nsys"))
"""Without payloads the simulated report of Nsight Systems tells neither the groups of a mesh nor the peers of messages."""


NSYS = [case for case in CHANGES if (case, "nsys") not in UNTOLD]

EVERY_TIME = {
    ("slow host", "kineto"), ("the host alone", "kineto"), ("an extra kernel", "kineto"), ("slow compute", "kineto"),
    ("slow copy", "kineto"), ("a slow stage", "kineto"), ("in turn", "kineto"), ("slow data", "nsys"),
}  # fmt: skip


def altered(job, **more):
    """The job with other instructions: `alter` gives what becomes of each, `None` leaves it out."""
    alter = more.pop("alter")
    programs = []
    for program in job.programs:
        kept = [after for after in map(alter, program.instructions) if after is not None]
        programs.append(dataclasses.replace(program, instructions=kept))
    return dataclasses.replace(job, programs=tuple(programs), **more)


def scaled(what, factor):
    def alter(one):
        of = {"compute": one.kind == "compute", "comm": one.comm is not None, "host": one.what == "host",
              "copy": one.kind == "copy"}  # fmt: skip
        return dataclasses.replace(one, ns=int(one.ns * factor)) if of[what] else one

    return alter


WHOLE = {
    "CPU work takes no time": (Change("cpu"), {"alter": scaled("host", 0), "launch_ns": 0}),
    "kernels twice as fast": (Change("compute", 0.5), {"alter": scaled("compute", 0.5)}),
    "copies are free": (Change("copy"), {"alter": scaled("copy", 0)}),
    "transfers are free": (Change("comm"), {"alter": scaled("comm", 0)}),
    "transfers twice as fast": (Change("comm", 0.5), {"alter": scaled("comm", 0.5)}),
    "hosts do not block": (Change("sync"), {"alter": lambda one: None if one.what == "sync" else one}),
}
SHAPES = {
    "data parallel": scenarios.ddp(4, steps=5),
    "bound by the host": scenarios.ddp(2, steps=5, slow_host_ns={0: 700_000, 1: 600_000}),
    "fed by a loader": scenarios.fed(2, steps=5, slow_data_ns={0: 3 * MS}),
    "hybrid sharding": scenarios.hsdp(2, 2, steps=5),
    "a pipeline": scenarios.pipeline(4, 4, steps=5),
}


@cache
def replay_of(shape):
    return analysed(quiet(SHAPES[shape]), "replay")[1]["replay"]


@pytest.mark.parametrize("of", sampled([(case, shape) for case in WHOLE for shape in SHAPES], every=4), ids=", ".join)
def test_a_change_of_the_whole_job_gives_what_that_job_does(of):
    case, shape = of
    change, more = WHOLE[case]
    before_ns, after_ns = steps_of(replay_of(shape), change)
    assert after_ns == pytest.approx(step_ns(run(quiet(altered(SHAPES[shape], **more)))), rel=0.05), before_ns


@pytest.mark.parametrize(
    ("case", "by"),
    [
        pytest.param(case, by, marks=() if (case, by) in EVERY_TIME else pytest.mark.thorough)
        for case, by in [*((case, "kineto") for case in CHANGES), *((case, "nsys") for case in NSYS)]
    ],
)
def test_a_change_gives_what_the_job_does_without_it(case, by):
    slow, fast, change = CHANGES[case]
    _, results = analysed(quiet(slow), "replay", by=by)
    before_ns, after_ns = steps_of(results["replay"], change)
    before, after = (step_ns(run(quiet(job))) for job in (slow, fast))
    assert before_ns == pytest.approx(before, rel=0.01)
    assert after_ns == pytest.approx(after, rel=0.05), (before, after)
    assert before_ns - after_ns == pytest.approx(before - after, rel=0.05)


def test_a_slow_rank_gains_as_its_peers_and_its_peers_gain_nothing():
    _, results = analysed(scenarios.ddp(3, slow_compute_ns={2: 500_000}), "replay")
    replay = results["replay"]
    *floors, slow = (saved_ns(replay, Change("rank", "peers", frozenset({rank}))) for rank in range(3))
    assert slow > 0.03 * replay.engine.before_ns
    assert max(floors) < 0.01 * replay.engine.before_ns, "what the others need is a floor"


@pytest.mark.parametrize(
    ("job", "gain_ms"),
    [
        (scenarios.ddp(3, steps=5, slow_compute_ns={1: 400_000}), 0.0),
        (scenarios.ddp(3, steps=7, in_turn_ns=6 * MS), 6.0 - 3 * 6.0 / 7),  # three turns of rank 0 in seven steps
    ],
    ids=["the slowest is always the same", "in turn"],
)
def test_without_waits_a_job_is_as_fast_as_its_slowest_rank_alone(job, gain_ms):
    _, results = analysed(quiet(job), "replay")
    assert saved_ns(results["replay"], Change("waits")) / MS == pytest.approx(gain_ms, abs=0.25)
