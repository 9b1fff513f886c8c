"""Networks on graphs: each rank samples neighbours on its host, and no two batches have as many nodes."""

import random

from tests.simulator.faults import Faults, factor, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import Group, Job, Program
from tests.simulator.workloads import layer_of, noisy_job, optimizer


def sampled(ranks: int = 4, steps: int = 6, faults: Faults = (), *, spread: float = 0.25, sample_ns: int = 1_500_000,
            seed: int = 4, noise: Noise | None = None) -> Job:  # fmt: skip
    """Neighbours are sampled, features copied, three layers run. `hubs`: a rank's nodes have more neighbours; `sampler`: it is slower."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        rank = program.rank
        times = random.Random(f"{seed} {rank} {number}").uniform(1 - spread, 1 + spread)
        times *= factor(faults, "hubs", rank, number)
        nodes = round(100_000 * times)
        load(program, faults, number)
        with program.range("sample_neighbors"):
            ns = round(sample_ns * times) + time_ns(faults, "sampler", rank, number)
            program.host(ns, "neighbor_sampler.py(214): sample_layer", "frame")
        with program.range("aten::to", "operator"):
            program.copy("HtoD", 4 * 128 * nodes, 12 * nodes, stream=7)
        for layer in range(6):
            operator = "torch_sparse::spmm" if layer < 3 else "SpmmBackward"
            layer_of(program, operator, "spmm_kernel", 8 * nodes, 20_000, f"[[{nodes}, 128], [{10 * nodes}]]")
            made = layer_of(program, "aten::addmm", "gemm", 4 * nodes, 14_000, f"[[{nodes}, 128], [128, 128]]")
            if layer == 1:
                strike(program, faults, number)
            if layer >= 3:
                made = program.collective("all_reduce", world, 100_000, 25_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
