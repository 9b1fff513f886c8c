"""What all ranks share: lengths by step, networks of several nodes, parameters that come from hosts, batches copied ahead."""

import random

from tests.simulator.faults import Faults, hit, load, strike, time_ns
from tests.simulator.jobs.transformers import block
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import noisy_job, optimizer


def by_buckets(ranks: int = 8, steps: int = 8, faults: Faults = (), *, layers: int = 3, seed: int = 4,
               noise: Noise | None = None) -> Job:  # fmt: skip
    """Data parallel; samples of like lengths are batched together, so that a step is short or long on all ranks alike."""
    world = Group("0", tuple(range(ranks)), "ddp")
    lengths = random.Random(seed).choices((0.5, 0.75, 1.0, 1.5), k=steps)

    def step(program: Program, number: int) -> None:
        own = lengths[number] * random.Random(f"{seed} {program.rank} {number}").uniform(0.98, 1.02)
        load(program, faults, number)
        for layer in range(layers):
            block(program, times=own)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(layers):
            made = block(program, is_backward=True, times=own)
            made = program.collective("all_reduce", world, 30_000_000, 280_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def over_four_nodes(nodes: int = 4, each: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 3,
                    noise: Noise | None = None) -> Job:  # fmt: skip
    """Hybrid sharding: sharded within nodes, gradients reduced across them a layer at a time, parameters read once.

    `rail`: the reductions of a rank's place take longer; `uplink`: those of all places.
    """
    rows, columns = adjacent("shard", each, nodes), strided("replicate", nodes, each)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // each], columns[program.rank % each]
        slow_ns = sum(time_ns(faults, "rail", rank, number) for rank in column.ranks) // layers
        slow_ns += max(time_ns(faults, "uplink", rank, number) for rank in range(nodes * each)) // layers
        load(program, faults, number)
        made, last = -1, -1
        ahead = program.collective("all_gather", row, 20_000_000, 160_000)
        for layer in range(2 * layers):
            got = ahead
            if layer + 1 < 2 * layers:
                ahead = program.collective("all_gather", row, 20_000_000, 160_000)
            made = block(program, (got,), is_backward=layer >= layers)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if layer >= layers:
                part = program.collective(
                    "reduce_scatter", row, 20_000_000, 170_000, stream=COMM_STREAM + 1, after=(made,)
                )
                last = program.collective(
                    "all_reduce", column, 5_000_000, 260_000 + slow_ns, stream=COMM_STREAM + 2, after=(part,)
                )
        optimizer(program, (last,))

    return noisy_job(nodes * each, steps, step, (*rows, *columns), faults, noise)


def parameters_from_hosts(ranks: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 5, copy_ns: int = 500_000,
                          noise: Noise | None = None) -> Job:  # fmt: skip
    """Shards of parameters lie with the hosts: copied up, then gathered, a layer ahead; gradients scattered, copied down.

    `bus`: a rank's copies take longer.
    """
    world = Group("0", tuple(range(ranks)), "zero")

    def step(program: Program, number: int) -> None:
        bus_ns = copy_ns + time_ns(faults, "bus", program.rank, number) // (2 * layers)

        def gathered() -> int:
            up = program.copy("HtoD", round(copy_ns * 50 / 1000) << 10, bus_ns)
            return program.collective("all_gather", world, 16_000_000, 150_000, after=(up,))

        load(program, faults, number)
        ahead, last = gathered(), -1
        for layer in range(2 * layers):
            got = ahead
            if layer + 1 < 2 * layers:
                ahead = gathered()
            made = block(program, (got,), is_backward=layer >= layers)
            if layer == 1:
                strike(program, faults, number)
            if layer >= layers:
                part = program.collective(
                    "reduce_scatter", world, 16_000_000, 160_000, stream=COMM_STREAM + 1, after=(made,)
                )
                last = program.copy("DtoH", 4 << 20, 90_000, stream=COPY_STREAM + 1, after=(part,))
        optimizer(program, (last,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def copied_ahead(
    ranks: int = 8, steps: int = 6, faults: Faults = (), *, layers: int = 3, noise: Noise | None = None
) -> Job:
    """Data parallel; the next step's batch is copied beside this one's compute. `batch`: a rank's copy takes longer.

    `pictures`: in a step a rank draws and copies pictures to its host for a log: pageable, waited for.
    """
    world = Group("0", tuple(range(ranks)), "ddp")
    before: dict[int, int] = {}

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        needed = (before[program.rank],) if program.rank in before else ()
        with program.range("prefetch"):
            before[program.rank] = program.copy(
                "HtoD", 64 << 20, 1_300_000 + time_ns(faults, "batch", program.rank, number)
            )
        for layer in range(layers):
            block(program, needed if not layer else ())
            if layer == 1:
                strike(program, faults, number)
        for _ in range(layers):
            made = block(program, is_backward=True)
            made = program.collective("all_reduce", world, 30_000_000, 280_000, after=(made,))
        optimizer(program, (made,))
        if hit(faults, "pictures", program.rank, number):
            with program.range("log_pictures"):
                for _ in range(8):
                    program.copy("DtoH", 4 << 20, 400_000, stream=COMPUTE_STREAM, memory="Pageable")
                    program.sync("cudaStreamSynchronize")
                    program.host(
                        time_ns(faults, "pictures", program.rank, number) // 8,
                        "torchvision/utils.py(120): save_image",
                        "frame",
                    )

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)
