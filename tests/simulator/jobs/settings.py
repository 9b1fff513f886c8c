"""Jobs of which one rank is set otherwise than the others: what it recomputes, fuses, draws, records, reads."""

import random

from tests.simulator.faults import Faults, factor, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, layer_of, noisy_job, optimizer


def unlike(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 10, noise: Noise | None = None) -> Job:
    """Data parallel. `recompute`: a rank runs forward again within backward; `unfused`: its optimizer runs a kernel for each
    of so many parameters; `masks`: each layer's is drawn by the host, for so long, and copied; `stacks`: each operator's
    host takes so many times as long, as under a profiler that records stacks.
    """  # fmt: skip
    world = Group("0", tuple(range(ranks)), "dp")

    def forward(program: Program, number: int, host_ns: int) -> None:
        layer_of(program, "aten::linear", "forward_gemm", 210_000, host_ns, WIDE_SHAPES)
        masks_ns = time_ns(faults, "masks", program.rank, number) // layers
        if masks_ns:
            with program.range("aten::bernoulli_", "operator", "[[4096, 2048]]"):
                program.host(masks_ns)
            with program.range("aten::to", "operator"):
                program.copy("HtoD", 1 << 20, 60_000, stream=COMPUTE_STREAM, memory="Pageable")
                program.sync("cudaStreamSynchronize", after=(program.launched - 1,))
        layer_of(program, "aten::gelu", "gelu_kernel", 40_000, host_ns, "[[4096, 2048]]")

    def step(program: Program, number: int) -> None:
        host_ns = round(10_000 * factor(faults, "stacks", program.rank, number))
        load(program, faults, number)
        for layer in range(layers):
            forward(program, number, host_ns)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(layers):
            if hit(faults, "recompute", program.rank, number):
                forward(program, number, host_ns)
            layer_of(program, "GeluBackward0", "gelu_backward", 60_000, host_ns, "[[4096, 2048]]")
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 420_000, host_ns, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 8_000_000, 170_000, after=(made,))
        if not hit(faults, "unfused", program.rank, number):
            return optimizer(program, (made,))
        with program.range("Optimizer.step#AdamW.step"):
            for place in range(time_ns(faults, "unfused", program.rank, number)):
                with program.range("aten::addcdiv_", "operator", "[[8192]]"):
                    program.host(24_000)
                    program.kernel("addcdiv_kernel", 4_000, after=() if place else (made,))
        return None

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def branched(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 8, noise: Noise | None = None
) -> Job:
    """Data parallel that looks for unused parameters: the graph is walked by the host, and a map of used ones reduced.

    `walk`: a rank's graph takes longer to walk; else each step takes one of two branches by chance, the same on all ranks.
    """
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        is_long = random.Random(number).random() < 0.5
        for layer in range(layers + 2 * is_long):
            layer_of(program, "aten::linear", "forward_gemm", 230_000, 11_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        program.sync("cudaStreamSynchronize")
        with program.range("prepare_for_backward"):
            walk_ns = 700_000 + time_ns(faults, "walk", program.rank, number)
            program.host(walk_ns, "distributed.py(1610): _find_unused_parameters", "frame")
        for _ in range(layers + 2 * is_long):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 460_000, 11_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 8_000_000, 170_000, after=(made,))
        made = program.collective("all_reduce", world, 300, 14_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
