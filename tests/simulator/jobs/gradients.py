"""Data parallel jobs told apart by how their gradients are cut up and reduced: buckets, pieces, hooks, what runs beside."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.program import Group, Job, Program
from tests.simulator.workloads import (
    SHAPES,
    job_of,
    layer_of,
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
