"""Which lengths a change changes, of which ranks and in which steps, and to what."""

import numpy as np
import pytest

from tests.simulator import scenarios
from tests.simulator.analysed import analysed
from tests.simulator.jobs import host_pauses
from traceanalyzer.analyses.replay.change import EVEN, HIDDEN, Change
from traceanalyzer.analyses.replay.lengths import changed, keeps_waits
from traceanalyzer.model.schema import NONE

CHOSEN = {
    Change("compute", 0.5): lambda op: op["kind"] == "compute",
    Change("copy", 0.0): lambda op: op["kind"] == "copy",
    Change("comm", 2.0): lambda op: op["kind"] == "comm",
    Change("collective", 0.5, name="all_reduce"): lambda op: op["collective"] == "all_reduce",
    Change("collective", 0.5, name="all_gather"): lambda op: op["collective"] == "all_gather",
    Change("kernel", 0.5, name="gemm"): lambda op: "gemm" in op["name"],
    Change("operator", 0.5, name="forward_gemm_op"): lambda op: op["operator"] == "forward_gemm_op",
    Change("rank", 0.5): lambda op: op["kind"] != "comm",
    Change("host", 0.5): lambda _: False,
    Change("data", 0.0): lambda _: False,
}
"""Changes, and of which operations."""


@pytest.fixture(scope="module")
def engine():
    return analysed(scenarios.fed(2, steps=3, slow_data_ns={0: 900_000}), "replay")[1]["replay"].engine


@pytest.mark.parametrize("steps", [None, frozenset({1})], ids=["every step", "one step"])
@pytest.mark.parametrize("ranks", [None, frozenset({1})], ids=["all ranks", "one rank"])
@pytest.mark.parametrize("change", CHOSEN, ids=str)
def test_operations_that_a_change_is_about_are_multiplied(engine, change, ranks, steps):
    job, peers = engine.job, engine.peers
    made = Change(change.part, change.to, ranks, steps, change.name)
    after = changed(job, peers, (made,))
    for rank, nodes in job.nodes.items():
        ops = nodes.piece.ops
        is_chosen = ops.astype(object).apply(CHOSEN[change], axis=1).to_numpy(dtype=bool)
        is_chosen = is_chosen & ops["step"].isin(steps or ops["step"]).to_numpy() & (rank in (ranks or job.nodes))
        before = job.recorded.timing[rank].duration_ns
        expected = np.where(is_chosen, np.round(before * change.to), before)
        assert after.timing[rank].duration_ns.tolist() == expected.tolist()
        rows = job.joins_of(rank)
        is_of_transfers = change.part in ("comm", "collective")
        chosen = is_chosen[job.joins["op"].to_numpy()[rows]] & is_of_transfers
        recorded = job.recorded.transfer_ns[rows]
        assert after.transfer_ns[rows].tolist() == np.where(chosen, np.round(recorded * change.to), recorded).tolist()


@pytest.mark.parametrize("steps", [None, frozenset({1})], ids=["every step", "one step"])
@pytest.mark.parametrize("ranks", [None, frozenset({1})], ids=["all ranks", "one rank"])
@pytest.mark.parametrize("part", ["host", "rank", "data", "compute"])
def test_hosts_that_a_change_is_about_work_for_as_much_longer(engine, part, ranks, steps):
    """Of the loader's change only what they spend in it; of compute's nothing."""
    job, peers = engine.job, engine.peers
    after = changed(job, peers, (Change(part, 0.5, ranks, steps),))
    for rank, nodes in job.nodes.items():
        host = nodes.piece.host
        own = host["data_ns"] if part == "data" else host["ns"] * (part != "compute")
        is_chosen = host["step"].isin(steps or host["step"]) & (rank in (ranks or job.nodes))
        less = after.timing[rank].host_ns - (host["ns"] - (own * 0.5).where(is_chosen, 0))
        assert less.abs().max() <= 0.5, "but for rounding"


@pytest.mark.parametrize(
    ("changes", "has_waits", "is_hidden"),
    [
        ((), True, False),
        ((Change("waits"),), False, False),
        ((Change("compute", 0.5), Change("waits")), False, False),
        ((Change("comm", HIDDEN),), True, True),
        ((Change("copy", 0.0), Change("comm", 0.5)), True, False),
    ],
    ids=lambda made: ", ".join(map(str, made)) if isinstance(made, tuple) else None,
)
def test_waits_and_dependencies_on_transfers_stay_unless_they_are_changed(engine, changes, has_waits, is_hidden):
    after = changed(engine.job, engine.peers, changes)
    assert after.has_waits is keeps_waits(changes) is has_waits
    assert {timing.is_hidden for timing in after.timing.values()} == {is_hidden}


@pytest.fixture(scope="module")
def meeting():
    return analysed(host_pauses.meeting_hosts(4, 3, (), groups=2), "replay")[1]["replay"].engine


@pytest.mark.parametrize("steps", [None, frozenset({1})], ids=["every step", "one step"])
@pytest.mark.parametrize(
    ("change", "has_name"),
    [
        (Change("comm", 0.5), True),
        (Change("comm", 0.5, frozenset({1, 2})), True),
        (Change("collective", 0.5, name="gloo:barrier"), True),
        (Change("collective", 0.5, name="barrier"), False),
        (Change("compute", 0.5), False),
        (Change("comm", EVEN), False),
    ],
    ids=lambda made: str(made) if isinstance(made, Change) else "",
)
def test_collectives_of_the_cpu_are_communication_too(meeting, change, has_name, steps):
    met = meeting.job.meetings
    assert {*met.name} == {"gloo:barrier"}
    assert (met.after_ns > 0).all()
    found = changed(
        meeting.job, meeting.peers, (Change(change.part, change.to, change.ranks, steps, change.name),)
    ).met_ns
    is_chosen = np.isin(met.rank, [*(change.ranks or meeting.job.nodes)]) & np.isin(met.step, [*(steps or {*met.step})])
    expected = np.where(is_chosen & has_name, np.round(met.after_ns * 0.5), met.after_ns)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("steps", [None, frozenset({1})], ids=["every step", "one step"])
@pytest.mark.parametrize(
    ("name", "is_named"),
    [("", True), ("cudaDeviceSynchronize", True), ("cudaStreamSynchronize", False), ("cudaDeviceSynchronize@optimizer", True),
     ("cudaDeviceSynchronize@forward", False)],
)  # fmt: skip
def test_calls_that_block_do_not_where_they_are_changed(name, is_named, steps):
    engine = analysed(scenarios.ddp(2, steps=3), "replay")[1]["replay"].engine
    after = changed(engine.job, engine.peers, (Change("sync", 0.0, steps=steps, name=name),))
    for rank, nodes in engine.job.nodes.items():
        segments = nodes.piece.segments
        assert {*segments["call"].dropna()} - {""} == {"cudaDeviceSynchronize"}
        is_chosen = segments["step"].isin(steps or segments["step"]) & is_named
        held = (segments["before"] != NONE).to_numpy()
        assert after.timing[rank].is_blocking[held].tolist() == (~is_chosen[held]).tolist()
        assert after.timing[rank].is_called.all()
