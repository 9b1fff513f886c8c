"""CPUs whose work takes now and then far longer, on all ranks alike."""

import random

from tests.findings.of_job import results_of
from tests.simulator.program import Group, Program
from tests.simulator.workloads import job_of, layer_of
from traceanalyzer.analyses.replay.changes import PEERS, Change


def test_a_rank_like_its_peers_gains_nothing():
    world, chance = Group("0", tuple(range(6))), random.Random(4)

    def step(program: Program, _: int) -> None:
        for _ in range(60):
            layer_of(program, "aten::linear", "forward_gemm", 5_000, round(20_000 * chance.lognormvariate(0, 1)))
        program.collective("all_reduce", world, 4_000_000, 50_000)

    engine = results_of(job_of(6, 5, step, (world,)))["replay"].engine
    before, *after = engine.steps([(), *((Change("cpu", PEERS, frozenset({rank})),) for rank in range(6))]).mean(axis=0)
    total = [sum(own) for own in engine.peers.hosts(0, is_all=True).values()]
    alike = [engine.peers.host(rank, 0, frozenset({rank}), is_all=True).sum() for rank in range(6)]
    assert abs(sum(alike) / sum(total) - 1) < 0.03
    assert min(after) > 0.9 * before
