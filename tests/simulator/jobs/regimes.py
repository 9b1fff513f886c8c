"""Jobs of unusual proportions: kernels of tens of milliseconds, steps of some hundred microseconds, gathers beyond compute."""

from tests.simulator.faults import Faults, load, strike
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import after_of, layer_of, noisy_job, optimizer


def of_long_kernels(ranks: int = 4, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """A few kernels of 20 to 40 ms a step, gradients in one piece; hosts are done long before their GPUs."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(4):
            layer_of(program, "aten::conv3d", "conv3d_fprop", 20_000_000, 30_000, "[[2, 64, 128, 128, 128]]")
            if layer == 1:
                strike(program, faults, number)
        for _ in range(4):
            made = layer_of(
                program, "ConvolutionBackward0", "conv3d_dgrad", 40_000_000, 30_000, "[[2, 64, 128, 128, 128]]"
            )
        made = program.collective("all_reduce", world, 40_000_000, 2_000_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def of_short_steps(ranks: int = 4, steps: int = 20, faults: Faults = (), *, kernel_ns: int = 6_000,
                   noise: Noise | None = None) -> Job:  # fmt: skip
    """A small network: some thirty kernels of some microseconds and one all-reduce a step, hosts as long as GPUs."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(24):
            made = layer_of(program, "aten::addmm" if layer < 8 else "AddmmBackward0", f"small_gemm_{layer // 8}", kernel_ns,
                            6_000, "[[256, 64], [64, 64]]")  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
        made = program.collective("all_reduce", world, 30_000, 15_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def bound_by_gathers(ranks: int = 8, steps: int = 4, faults: Faults = (), *, layers: int = 6, gather_ns: int = 600_000,
                     noise: Noise | None = None) -> Job:  # fmt: skip
    """Sharded over slow links: parameters come later than what is computed beside takes; forward and backward alike."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(2 * layers):
            is_forward = layer < layers
            got = program.collective("all_gather", world, 60_000_000, gather_ns)
            made = after_of(program, "aten::linear" if is_forward else "AddmmBackward0",
                            "forward_gemm" if is_forward else "backward_gemm", 200_000 if is_forward else 400_000, (got,))  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
            if not is_forward:
                made = program.collective(
                    "reduce_scatter", world, 60_000_000, 300_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
