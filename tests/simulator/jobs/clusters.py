"""What clusters do to jobs: storage that all share, lengths that a replica's ranks share, hosts that others use at times."""

import random

from tests.simulator.faults import Fault, Faults, factor, load, strike
from tests.simulator.jobs.transformers import block
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import after_of, layer_of, noisy_job, optimizer


def on_shared_storage(ranks: int = 8, steps: int = 8, faults: Faults = (), *, stall_ns: int = 4_000_000, chance: float = 0.25,
                      seed: int = 5, noise: Noise | None = None) -> Job:  # fmt: skip
    """Sharded; every rank's loader stalls by chance, in a quarter of the steps, on storage that all share."""
    world = Group("0", tuple(range(ranks)), "fsdp")
    drawn = random.Random(seed)
    stalls = tuple(
        Fault("data", round(stall_ns * drawn.lognormvariate(0, 0.5)), (rank,), (step,))
        for step in range(steps) for rank in range(ranks) if drawn.random() < chance
    )  # fmt: skip

    def step(program: Program, number: int) -> None:
        load(program, (*faults, *stalls), number)
        made = -1
        for layer in range(6):
            got = program.collective("all_gather", world, 12_000_000, 120_000)
            made = block(program, (got,), is_backward=layer >= 3)
            if layer == 1:
                strike(program, faults, number)
            if layer >= 3:
                made = program.collective(
                    "reduce_scatter", world, 12_000_000, 130_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def of_replicas_lengths(tensor: int = 2, data: int = 4, steps: int = 6, faults: Faults = (), *, spread: float = 0.3, seed: int = 9,
                        layers: int = 3, noise: Noise | None = None) -> Job:  # fmt: skip
    """Tensor in data parallelism; a replica's ranks share its sequences, whose lengths are drawn anew in each step."""
    rows, columns = adjacent("tp", tensor, data), strided("dp", data, tensor)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        times = random.Random(f"{seed} {program.rank // tensor} {number}").uniform(1 - spread, 1 + spread)
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        reduced = -1
        for layer in range(2 * layers):
            made = block(program, needed, is_backward=layer >= layers, times=times)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            needed = (program.collective("all_reduce", row, 4_000_000, round(60_000 * times), after=(made,)),)
            if layer >= layers:
                reduced = program.collective(
                    "all_reduce", column, 20_000_000, 250_000, stream=COMM_STREAM + 1, after=needed
                )
        optimizer(program, (reduced,))

    return noisy_job(tensor * data, steps, step, (*rows, *columns), faults, noise)


def beside_other_jobs(ranks: int = 4, steps: int = 8, faults: Faults = (), *, layers: int = 24, kernel_ns: int = 22_000,
                      noise: Noise | None = None) -> Job:  # fmt: skip
    """Data parallel with hosts hardly quicker than their GPUs; `neighbour`: another job takes a host's cores in some layers."""
    world = Group("0", tuple(range(ranks)), "ddp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        times = factor(faults, "neighbour", program.rank, number)
        drawn = random.Random(f"{program.rank} {number}")
        for layer in range(2 * layers):
            host_ns = round(13_000 * (times if drawn.random() < 0.5 else 1))
            made = layer_of(program, "aten::addmm" if layer < layers else "AddmmBackward0",
                            "forward_gemm" if layer < layers else "backward_gemm", kernel_ns, host_ns)  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
            if layer >= layers and layer % 8 == 7:
                made = program.collective("all_reduce", world, 2_000_000, 60_000, after=(made,))
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize", after=(program.launched - 1,))
        after_of(program, "aten::_fused_adamw_", "adam", 60_000, (made,), 12_000, "")

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)
