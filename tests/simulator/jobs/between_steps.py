"""Jobs that do something else in some steps, or between them: evaluation, validation, checkpoints."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.program import Group, Job, Program
from tests.simulator.workloads import SHAPES, job_of, layer_of, optimizer


def evaluating(ranks: int = 4, steps: int = 6, faults: Faults = (), *, layers: int = 6) -> Job:
    """Data parallel; the fault `eval` is that forward passes follow the optimizer: the same kernels, launched again."""
    world = Group("0", tuple(range(ranks)))
    operators = ("aten::linear", "aten::bmm", "aten::convolution")  # no one of them explains half of it

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            layer_of(program, operators[layer % 3], "gemm", 600_000, 200_000)
        reduced = -1
        for _ in range(layers):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 900_000, 200_000)
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))
        again = time_ns(faults, "eval", program.rank, number) // 600_000
        if again:
            with program.range("evaluate"):
                for layer in range(again):
                    layer_of(program, operators[layer % 3], "gemm", 600_000, 200_000)

    return job_of(ranks, steps, step, (world,), faults)


def validates(ranks: int = 4, steps: int = 7, faults: Faults = (), *, every: int = 3) -> Job:
    """Every rank validates in every third step: long steps that are nobody's fault."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(8):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 15_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))
        if number % every == 0:
            with program.range("validate"):
                for _ in range(12):
                    layer_of(program, "aten::linear", "eval_gemm", 400_000, 15_000, "[[8192, 768], [768, 768]]")

    return job_of(ranks, steps, step, (world,), faults)


def saves_with_barrier(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """Data parallel with a flag reduced at the end of every step as a barrier, so that all wait while rank 0 saves."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for _ in range(8):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 15_000, SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))
        strike(program, faults, number)
        program.collective("all_reduce", world, 1, 20_000, after=(program.launched - 1,))

    return job_of(ranks, steps, step, (world,), faults)
