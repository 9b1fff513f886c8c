"""Sharded jobs, told apart by when parameters are gathered: ahead, late, twice, within limits, by hooks."""

from tests.simulator.faults import Faults, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.workloads import (
    SHAPES,
    WIDE_SHAPES,
    after_of,
    job_of,
    linear_after,
    noisy_job,
    optimizer,
)


def uneven_prefetch(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 8) -> Job:
    """ZeRO-3 that gathers two layers ahead in places and none in others."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        gathered: dict[int, int] = {}
        for layer in range(2 * layers):
            ahead = 3 if layer % 3 == 0 else 1
            for place in range(layer, min(layer + ahead, 2 * layers)):
                if place not in gathered:
                    program.host(8_000)
                    gathered[place] = program.collective("all_gather", world, 8_000_000 + place, 90_000)
            with program.range("aten::linear", "operator", SHAPES):
                program.host(12_000)
                made = program.kernel("gemm", 280_000, after=(gathered[layer],))
            if layer == 1:
                strike(program, faults, number)
            if layer >= layers:
                made = program.collective("reduce_scatter", world, 8_000_000, 90_000, stream=COMM_STREAM + 1,
                                          after=(made,))  # fmt: skip
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def limited(ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 8, offloaded: int = 3, limit: int = 2,
            noise: Noise | None = None) -> Job:  # fmt: skip
    """FSDP2: hosts stay `limit` layers ahead; the parameters of some layers lie in the host's memory, and so do their gradients.

    `bus`: what a rank's copies to its GPU take more.
    """
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        done: list[int] = []
        bus_ns = time_ns(faults, "bus", program.rank, number) // (2 * offloaded)
        for place in range(2 * layers):
            layer = place if place < layers else 2 * layers - 1 - place
            if len(done) >= limit:
                program.sync("cudaEventSynchronize", after=(done[-limit],))
            needed: tuple[int, ...] = ()
            if layer < offloaded:
                with program.range("aten::_to_copy", "operator"):
                    needed = (program.copy("HtoD", 12 << 20, 260_000 + bus_ns),)
            with program.range(f"FSDP::all_gather (layers.{layer})"):
                program.host(25_000)
                gathered = program.collective("all_gather", world, 12_000_000, 110_000, after=needed)
            name = "aten::linear" if place < layers else "aten::linear_backward"
            with program.range(name, "operator", WIDE_SHAPES):
                program.host(18_000)
                made = program.kernel("forward_gemm" if place < layers else "backward_gemm",
                                      420_000 if place < layers else 800_000, after=(gathered,))  # fmt: skip
            if place == 1:
                strike(program, faults, number)
            done.append(made)
            if place >= layers:
                scattered = program.collective("reduce_scatter", world, 12_000_000, 120_000, stream=COMM_STREAM + 1,
                                               after=(made,))  # fmt: skip
                if layer < offloaded:
                    program.copy("DtoH", 12 << 20, 240_000, stream=COPY_STREAM + 1, after=(scattered,))
        optimizer(program, (scattered,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def prefetching(ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 6, gather_ns: int = 120_000,
                copy_ns: int = 200_000, is_synced: bool = False, noise: Noise | None = None) -> Job:  # fmt: skip
    """FSDP2: the next layer is gathered ahead into one of two buffers, copied out, and gradients are scattered beside.

    `twice`: each layer is gathered once more in forward; `dtype`: a rank's products are made in 32 bits; `batch`: what
    its batch's copy takes more; `allocate`: what it spends in calls for memory.
    """
    world = Group("0", tuple(range(ranks)), "fsdp")

    def gather(program: Program, number: int, free: tuple[int, ...], layer: int) -> int:
        with program.range(f"FSDP::all_gather (layers.{layer})"):
            program.host(20_000)
            for _ in range(1 + hit(faults, "twice", program.rank, number)):
                made = program.collective("all_gather", world, 20_000_000, gather_ns, after=free)
        return made

    def step(program: Program, number: int) -> None:
        is_wide = hit(faults, "dtype", program.rank, number)
        kind, times = ("sgemm_fp32", 2.4) if is_wide else ("bf16_gemm", 1.0)
        load(program, faults, number)
        with program.range("aten::to", "operator"):
            batch_ns = copy_ns + time_ns(faults, "batch", program.rank, number)
            program.copy("HtoD", 8 << 20, batch_ns, stream=COMPUTE_STREAM)
        done: list[int] = []
        held = gather(program, number, (), 0)
        order = [*range(layers), *reversed(range(layers))]
        for place in range(2 * layers):
            ready = held
            if place + 1 < len(order):
                held = gather(program, number, tuple(done[-1:]), order[place + 1])
            ns = 350_000 if place < layers else 700_000
            after_of(
                program, "fsdp::all_gather_copy_out", "split_with_sizes_copy", 25_000, (ready,), 10_000, "[[20000000]]"
            )
            for part in range(2):
                shapes = WIDE_SHAPES if place < layers else "[[2048, 8192], [8192, 4096]]"
                done.append(after_of(program, "aten::mm", f"{kind}_{part}", round(ns * times / 2), (), shapes=shapes))
            if place == 1:
                strike(program, faults, number)
            wasted = time_ns(faults, "allocate", program.rank, number) // 9
            if wasted and place in (2, 5, 8):
                _allocated(program, wasted, done[-1])
            if place >= layers:
                copied = after_of(program, "fsdp::chunk_cat", "chunk_cat", 25_000, (), 10_000, "[[20000000]]")
                last = program.collective(
                    "reduce_scatter", world, 20_000_000, gather_ns, stream=COMM_STREAM + 1, after=(copied,)
                )
        optimizer(program, (last,))

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=is_synced)


def _allocated(program: Program, each_ns: int, made: int) -> None:
    """Memory is full, and freed three times."""
    for _ in range(3):
        program.sync("cudaDeviceSynchronize", after=(made,))
        program.host(each_ns, "cudaFree", "call")


def by_hooks(ranks: int = 4, steps: int = 4, faults: Faults = (), *, modules: int = 30, hook_ns: int = 150_000,
             noise: Noise | None = None) -> Job:  # fmt: skip
    """ZeRO-3: before each module a hook fetches its parameters, after it another drops them: hosts are slower than GPUs."""
    world = Group("0", tuple(range(ranks)), "data_parallel_group")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for module in range(2 * modules):
            with program.range("PartitionedParameterCoordinator.fetch_sub_module", "frame"):
                program.host(hook_ns, "partitioned_param_coordinator.py(285): fetch_sub_module", "frame")
                gathered = program.collective("all_gather", world, 4_000_000, 40_000)
            made = after_of(
                program, "aten::linear" if module < modules else "aten::linear_backward", "gemm", 110_000, (gathered,)
            )
            if module == 1:
                strike(program, faults, number)
            if module >= modules:
                made = program.collective(
                    "reduce_scatter", world, 4_000_000, 45_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def regathered(ranks: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 6, gather_ns: int = 700_000,
               backward_bytes: float = 1.0) -> Job:  # fmt: skip
    """Fully sharded: parameters are dropped after forward and gathered once more in backward (where `again` is)."""
    sizes = [80_000_000 + 500_000 * layer for layer in range(layers)]
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            with program.range("forward"):
                got = program.collective("all_gather", world, sizes[layer], gather_ns)
                with program.range("aten::linear", "operator", SHAPES):
                    program.host(12_000)
                    program.kernel("forward_gemm", 300_000, after=(got,))
            if layer == 1:
                strike(program, faults, number)
        last = -1
        for layer in reversed(range(layers)):
            with program.range("backward"):
                needed: tuple[int, ...] = ()
                if hit(faults, "again", program.rank, number):
                    needed = (program.collective("all_gather", world, round(backward_bytes * sizes[layer]), gather_ns),)
                made = linear_after(program, "backward_gemm", 600_000, needed)
                last = program.collective("reduce_scatter", world, sizes[layer], 300_000, stream=COMM_STREAM + 1,
                                          after=(made,))  # fmt: skip
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults)
