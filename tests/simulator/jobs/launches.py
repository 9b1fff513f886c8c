"""Jobs whose hosts launch more slowly than their GPUs compute, and CUDA graphs, which launch for them."""

from tests.simulator.faults import Faults, factor, hit, load, strike
from tests.simulator.noise import Noise
from tests.simulator.program import Group, Job, Program
from tests.simulator.workloads import SHAPES, job_of, layer_of, noisy_job, optimizer


def small_kernels(ranks: int = 4, steps: int = 4, faults: Faults = (), *, kernels: int = 300) -> Job:
    """Kernels that end before the next one is launched."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for place in range(kernels):
            with program.range("aten::add", "operator"):
                program.host(9_000)
                made = program.kernel("elementwise_kernel", 3_000)
            if place == 1:
                strike(program, faults, number)
        reduced = program.collective("all_reduce", world, 400_000, 40_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def pinned(ranks: int = 8, steps: int = 5, faults: Faults = (), *, kernels: int = 200) -> Job:
    """Tensor parallel with small kernels; a process with the fault `pinned` shares its core: all its host work is slower."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        times = factor(faults, "pinned", program.rank, number)
        load(program, faults, number)
        for place in range(kernels):
            made = layer_of(
                program, f"aten::op{place % 5}", f"small_{place % 5}", 10_000, round(14_000 * times), SHAPES
            )
            if place % 20 == 19:
                reduced = program.collective("all_reduce", world, 200_000, 15_000, after=(made,))
                program.kernel("residual", 4_000, after=(reduced,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def replayed(ranks: int = 4, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Forward and backward are replayed graphs, the gradients are exchanged between them and the optimizer's."""
    world = Group("0", tuple(range(ranks)))
    kernels = [("graphed_gemm", 180_000), ("graphed_gelu", 40_000), ("graphed_norm", 20_000)] * 12

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(2):
            program.host(30_000)
            made = program.graph(kernels)
        strike(program, faults, number)
        for _ in range(4):
            program.host(10_000)
            made = program.collective("all_reduce", world, 16_000_000, 350_000, after=(program.launched - 1,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def partly_graphed(ranks: int = 4, steps: int = 5, faults: Faults = (), *, kernels: int = 120) -> Job:
    """Data parallel in CUDA graphs; ranks with the fault `eager` launch each kernel, fast enough for their GPU."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        names = [(f"kernel_{place % 4}", 30_000) for place in range(kernels)]
        if not hit(faults, "eager", program.rank, number):
            program.host(30_000, "graphs.py(88): replay", "frame")
            made = program.graph(names)
        else:
            for name, ns in names:
                made = layer_of(program, f"aten::{name}", name, ns, 6_000, SHAPES)
        strike(program, faults, number)
        for _ in range(4):
            made = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made, program.launched - 1))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)
