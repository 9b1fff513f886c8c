"""Jobs whose ranks or steps have batches or sequences of unlike lengths."""

import random

from tests.simulator.faults import Faults, factor, load, strike
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, optimizer


def lengths_and_faults(
    ranks: int = 4, steps: int = 8, faults: Faults = (), *, spread: float = 0.2, seed: int = 0
) -> Job:
    """Data parallel with sequences of random lengths, another one on each rank and in each step, and faults on top."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)
    times = {(rank, step): 1 + chance.uniform(-spread, spread) for rank in range(ranks) for step in range(steps)}

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        factor = times[program.rank, number]
        shapes = f"[[{round(4096 * factor)}, 768], [768, 768]]"
        reduced = -1
        for layer in range(10):
            with program.range("aten::linear", "operator", shapes):
                program.host(15_000)
                made = program.kernel("gemm", round(500_000 * factor), blocks=round(4096 * factor))
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def other_batch(ranks: int = 8, steps: int = 4, faults: Faults = ()) -> Job:
    """Sharded; a rank with the fault `batch` has so many times the samples: larger shapes, longer kernels, larger grids."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        times = factor(faults, "batch", program.rank, number)
        shapes = f"[[{round(4096 * times)}, 768], [768, 768]]"
        load(program, faults, number)
        for layer in range(12):
            gathered = program.collective("all_gather", world, 8_000_000, 60_000)
            operator = "aten::linear" if layer < 6 else "autograd::engine::evaluate_function: AddmmBackward0"
            with program.range(operator, "operator", shapes):
                program.host(15_000)
                made = program.kernel("nvjet_tst_128x256", round(500_000 * times), after=(gathered,),
                                      blocks=round(256 * times))  # fmt: skip
            last = program.collective("reduce_scatter", world, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults)
