"""Jobs whose hosts stop for something: garbage, other threads, each other, work around the step."""

import random

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.program import Group, Job, Program, adjacent
from tests.simulator.workloads import SHAPES, job_of, layer_of, optimizer


def around(ranks: int = 2, steps: int = 6, faults: Faults = (), *, layers: int = 6) -> Job:
    """Data parallel, the loss read in each step; the fault `host` comes before the forward pass, `gc` after the step."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        before, after = (time_ns(faults, what, program.rank, number) for what in ("host", "gc"))
        if before:
            with program.range("augment"):
                program.host(before, "train.py(50): augment", "frame")
        load(program, (), number)
        for _ in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 20_000)
        reduced = -1
        for _ in range(layers):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000, 20_000)
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))
        with program.range("aten::item", "operator"):
            program.sync("cudaStreamSynchronize")
        if after:
            with program.range("log"):
                program.host(after, "gc.collect", "frame")

    return job_of(ranks, steps, step, (world,), faults, ends_synced=False)


def stalling_hosts(
    ranks: int = 4, steps: int = 8, faults: Faults = (), *, stall_ns: int = 900_000, seed: int = 2
) -> Job:
    """Every host stalls in one layer of ten, another one each time; the GPUs have work queued before them."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(12):
            stalls = chance.random() < 0.1
            made = layer_of(program, "aten::linear", "gemm", 500_000, 15_000 + stalls * stall_ns, SHAPES)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def held(ranks: int = 4, steps: int = 5, faults: Faults = (), *, times: int = 4) -> Job:
    """Tensor parallel with Python's stacks; on a rank another thread decodes and holds the interpreter meanwhile (`gil`)."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        each_ns = time_ns(faults, "gil", program.rank, number) // times
        load(program, faults, number)
        for layer in range(24):
            with program.range("nn.Module: Linear_0", "frame"):
                if each_ns and layer % (24 // times) == 2:
                    program.aside(each_ns, "prefetch.py(41): decode")
                    program.host(each_ns, "linear.py(125): forward", "frame")
                made = layer_of(program, "aten::linear", "gemm", 110_000, 20_000, SHAPES)
            reduced = program.collective("all_reduce", world, 1_000_000, 25_000, after=(made,))
            program.kernel("residual", 8_000, after=(reduced,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def meeting_hosts(
    ranks: int = 4, steps: int = 6, faults: Faults = (), *, name: str = "barrier", groups: int = 1, handed: int = 0
) -> Job:
    """Hosts that meet in a collective of the CPU, all or some of them, before they launch each step."""
    world = Group("0", tuple(range(ranks)))
    each = ranks // groups
    of_cpu = adjacent("gloo", each, groups)

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        strike(program, faults, number)
        program.meet(of_cpu[program.rank // each], name, handed=handed)
        for _ in range(8):
            made = layer_of(program, "aten::linear", "gemm", 250_000, 30_000, SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 100_000, after=(made,))
        optimizer(program, (reduced,))
        program.sync("cudaStreamSynchronize")

    return job_of(ranks, steps, step, (world, *of_cpu), faults)
