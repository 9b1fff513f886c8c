"""Which lengths a change changes, of which ranks and in which steps, and to what."""

import numpy as np
import pytest

from tests.simulator import scenarios
from tests.simulator.analysed import analysed
from traceanalyzer.analyses.replay.change import HIDDEN, Change
from traceanalyzer.analyses.replay.lengths import changed, keeps_waits

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
