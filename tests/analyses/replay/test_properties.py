"""What holds of every job: of its replay and its path."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator import scenarios
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import host_pauses
from traceanalyzer.analyses.replay.changes import UNRECORDED, Change
from traceanalyzer.analyses.replay.critical_path import critical_path
from traceanalyzer.analyses.replay.graph import order_of

JOBS = {
    "data parallel": scenarios.ddp(3, steps=3, slow_host_ns={1: 300_000}, seed=1),
    "fed by a loader": scenarios.fed(2, steps=3, slow_data_ns={0: 900_000}),
    "hybrid sharding": scenarios.hsdp(2, 2, steps=3, slow_compute_ns={3: 50_000}, seed=2),
    "hosts that meet": host_pauses.meeting_hosts(4, 3, (Fault("host", 2_000_000, (1,)),), groups=2),
    "pipeline": scenarios.pipeline(3, 3, steps=3, slow_compute_ns={2: 200_000}, seed=3),
}


@pytest.fixture(scope="module", params=[pytest.param("data parallel", marks=pytest.mark.thorough), *[*JOBS][1:]])
def results(request):
    return analysed(JOBS[request.param], "replay")[1]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(place=st.floats(0, 0.999), share=st.floats(0, 1))
def test_an_operation_shorter_by_a_time_shortens_the_job_by_at_most_that(results, place, share):
    job = results["replay"].engine.job
    rank = list(job.nodes)[int(place * len(job.nodes))]
    timing = job.recorded.timing[rank]
    op = int(place * 7919 * len(timing.duration_ns)) % len(timing.duration_ns)
    duration = timing.duration_ns.copy()
    shorter_ns = int(share * duration[op])
    duration[op] -= shorter_ns
    changed = dataclasses.replace(timing, duration_ns=duration)
    lengths = dataclasses.replace(job.recorded, timing={**job.recorded.timing, rank: changed})
    before, after = job.replay(job.recorded, lengths).T
    assert (after <= before).all()
    assert (before - after <= shorter_ns).all()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(part=st.sampled_from(["compute", "copy", "cpu", "comm"]), factor=st.floats(0.2, 3))
def test_the_path_of_every_replay_tiles_its_window(results, part, factor):
    engine = results["replay"].engine
    change = Change(part, factor)
    path = critical_path(engine.job, engine.windows, engine.lengths(change))
    assert (path["start_ns"].to_numpy()[1:] == path["end_ns"].to_numpy()[:-1]).all()
    steps = engine.steps_after([(change,)])
    assert path["end_ns"].iloc[-1] - path["start_ns"].iloc[0] == steps.sum()


def test_more_is_never_faster(results):
    engine = results["replay"].engine
    longer = [(Change(part, 1.5),) for part in ("compute", "copy", "cpu", "comm")]
    shorter = [(Change(part, 0.5),) for part in ("compute", "copy", "cpu", "comm")]
    shorter += [(Change("rank", 0.5, frozenset({rank})),) for rank in engine.job.nodes] + [(Change("waits", 0.0),)]
    for cost in ((), (UNRECORDED,)):
        (before,) = engine.steps([cost]).mean(axis=0)
        assert (engine.steps([(*changes, *cost) for changes in longer]).mean(axis=0) >= before - 1).all()
        assert (engine.steps([(*changes, *cost) for changes in shorter]).mean(axis=0) <= before + 1).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_levels_give_what_one_node_after_the_other_gives(data):
    count = data.draw(st.integers(2, 12))
    pairs = [
        (low, high) for high in range(1, count) for low in data.draw(st.sets(st.integers(0, high - 1), min_size=1))
    ]
    renamed = np.append(0, 1 + np.array(data.draw(st.permutations(range(count - 1))), dtype=np.int64))
    weights = np.array(data.draw(st.lists(st.integers(-5, 50), min_size=len(pairs), max_size=len(pairs))))
    source, target = (renamed[[pair[side] for pair in pairs]] for side in (0, 1))
    order = order_of(count, source, target, np.zeros(len(pairs), bool), np.zeros(len(pairs), np.int64))
    times = np.zeros(count, dtype=np.int64)
    for node in range(1, count):
        times[renamed[node]] = max(
            times[s] + w for s, t, w in zip(source, target, weights, strict=True) if t == renamed[node]
        )
    assert (order.latest(weights[:, None])[:, 0] == times).all()


def test_an_edge_that_closes_a_circle_is_dropped_if_it_may():
    source, target = np.array([0, 1, 2]), np.array([1, 2, 1])
    order = order_of(3, source, target, np.array([False, False, True]), np.array([0, 0, 5]))
    assert order.dropped.tolist() == [False, False, True]
    assert order.latest(np.array([[3], [4], [100]]))[:, 0].tolist() == [0, 3, 7]
