"""Data parallel jobs told apart by how their gradients are cut up and reduced: buckets, pieces, hooks, what runs beside."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import Group, Job, Program
from tests.simulator.workloads import (
    SHAPES,
    WIDE_BACK_SHAPES,
    WIDE_SHAPES,
    job_of,
    layer_of,
    linear_after,
    noisy_job,
    optimizer,
)


def serial(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 30, transfer_ns: int = 150_000) -> Job:
    """An all-reduce a parameter after backward: nothing overlaps."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(6):
            layer_of(program, "aten::linear", "forward_gemm", 400_000, 15_000)
            if layer == 1:
                strike(program, faults, number)
        needed: tuple[int, ...] = (program.launched - 1,)
        for _ in range(layers):
            program.host(10_000)
            needed = (program.collective("all_reduce", world, 400_000, transfer_ns, after=needed),)
        optimizer(program, needed)

    return job_of(ranks, steps, step, (world,), faults)


def unbucketed(ranks: int = 4, steps: int = 4, faults: Faults = (), *, tensors: int = 240) -> Job:
    """An all-reduce for each parameter, small ones, each beside no more than a small kernel."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 300_000, 10_000, SHAPES)
        reduced = -1
        for _ in range(tensors):
            made = layer_of(program, "aten::mm", "backward_gemm", 12_000, 6_000, SHAPES)
            reduced = program.collective("all_reduce", world, 20_000, 30_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def bucketed(ranks: int = 8, steps: int = 4, faults: Faults = (), *, buckets: tuple[int, ...] = (2,) * 8, times: int = 1,
             noise: Noise | None = None) -> Job:  # fmt: skip
    """Data parallel whose buckets hold so many of sixteen layers' gradients, reduced so many `times`."""
    world = Group("0", tuple(range(ranks)))
    ends = {sum(buckets[: place + 1]): size for place, size in enumerate(buckets)}

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(16):
            layer_of(program, "aten::linear", "forward_gemm", 180_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for layer in range(1, 17):
            made = layer_of(
                program, "aten::linear_backward", "backward_gemm", 360_000, 14_000, "[[4096, 2048], [4096, 2048]]"
            )
            for _ in range(times if layer in ends else 0):
                made = program.collective(
                    "all_reduce", world, 25_000_000 * ends[layer], 250_000 * ends[layer], after=(made,)
                )
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def medium(ranks: int = 4, steps: int = 4, faults: Faults = (), *, calls: int = 40, each_ns: int = 180_000,
           large_ns: int = 1_400_000) -> Job:  # fmt: skip
    """Gradients are reduced in pieces of 8 MB, each far from the links' rate, beside few pieces of 320 MB."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            layer_of(program, "aten::linear", "gemm", 700_000, 12_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
        reduced = -1
        for _ in range(calls):
            reduced = program.collective("all_reduce", world, 4_000_000, each_ns, after=(program.launched - 1,))
        for _ in range(2):
            reduced = program.collective("all_reduce", world, 160_000_000, large_ns, after=(reduced,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def hooked(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 10) -> Job:
    """Gradients are handed to a hook of Python before they are reduced; `hook` is its time a step on a rank."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 12_000, SHAPES)
        reduced = -1
        hook_ns = 20_000 + time_ns(faults, "hook", program.rank, number) // layers
        for _ in range(layers):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000, 12_000, SHAPES)
            program.host(hook_ns, "compression.py(41): compress_hook", "frame")
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def contended(ranks: int = 4, steps: int = 5, faults: Faults = (), *, times: float = 1.8, shapes: str = SHAPES) -> Job:
    """Kernels beside all-reduces take longer than the same kernels alone; all-reduces run beside half of them."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(24):
            is_beside = layer % 2 == 1
            ns = round(500_000 * (times if is_beside else 1))
            made = layer_of(program, "aten::linear", "gemm", ns, 12_000, shapes)
            if not is_beside:
                reduced = program.collective("all_reduce", world, 30_000_000, 850_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def bound_by_links(ranks: int = 8, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Data parallel whose all-reduces take twice as long as backward: what a rank computes longer beside them costs nothing.

    `backward`: what a rank's backward takes more.
    """
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for layer in range(8):
            more_ns = time_ns(faults, "backward", program.rank, number) // 7 if layer else 0
            made = layer_of(
                program, "aten::linear_backward", "backward_gemm", 400_000 + more_ns, 14_000, WIDE_BACK_SHAPES
            )
            made = program.collective("all_reduce", world, 40_000_000, 1_000_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def with_buffers(ranks: int = 4, steps: int = 5, faults: Faults = (), *, buffers: int = 24) -> Job:
    """Data parallel that broadcasts its buffers before each forward pass."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        sent = -1
        for _ in range(buffers):
            program.host(4_000)
            sent = program.collective("broadcast", world, 2_048, 12_000, after=(program.launched - 1,))
        reduced = -1
        for layer in range(12):
            made = linear_after(program, "gemm", 500_000, (sent,) if layer == 0 else ())
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)
