"""Jobs of unusual proportions: kernels of tens of milliseconds, steps of some hundred microseconds, gathers beyond compute."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent
from tests.simulator.workloads import WIDE_BACK_SHAPES, after_of, layer_of, linear_after, noisy_job, optimizer


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


def beside_shared(ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 6,
                  noise: Noise | None = None) -> Job:  # fmt: skip
    """Experts whose tokens travel beside a shared expert. `hot`: in layers (2 + rank) % 6 alone a rank's experts take longer."""
    world = Group("0", tuple(range(ranks)), "ep")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(2 * layers):
            is_hot = layer % layers == (2 + program.rank) % layers
            hot_ns = time_ns(faults, "hot", program.rank, number) // 2 if is_hot else 0
            made = layer_of(program, "aten::linear", "attention_gemm", 250_000, 14_000)
            sent = program.collective("all_to_all", world, 2_000_000, 90_000, after=(made,))
            after_of(program, "aten::linear", "shared_gemm", 110_000, (), 14_000, WIDE_BACK_SHAPES)
            done = after_of(program, "aten::_grouped_mm", "grouped_gemm", 250_000 + hot_ns, (sent,), 14_000,
                            f"[[{2048 + hot_ns // 100}, 2048], [4, 2048, 1024]]")  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
                done = program.launched - 1
            back = program.collective("all_to_all", world, 2_000_000, 90_000, after=(done,))
            after_of(program, "aten::add", "combine", 25_000, (back,), 9_000, "")
        made = program.collective("all_reduce", world, 20_000_000, 350_000, stream=COMM_STREAM + 1,
                                  after=(program.launched - 1,))  # fmt: skip
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def asked_by_the_hub(ranks: int = 6, steps: int = 6, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Pairs in tensor parallel; after each step scores are gathered, rank 0 decides on its host and tells all, who wait for it.

    `decide`: what that takes rank 0 more.
    """
    world, rows = Group("0", tuple(range(ranks)), "world"), adjacent("tp", 2, ranks // 2)

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // 2]
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(10):
            made = linear_after(program, "gemm_0" if layer < 5 else "gemm_1", 250_000, needed)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            needed = (program.collective("all_reduce", row, 2_000_000, 40_000, after=(made,)),)
        program.collective("all_gather", world, 1000, 20_000, stream=COMPUTE_STREAM, after=needed)
        program.sync("cudaStreamSynchronize")
        if program.rank == 0:
            with program.range("decide_learning_rate"):
                program.host(40_000 + time_ns(faults, "decide", 0, number), "trainer.py(412): decide", "frame")
        got = program.collective("broadcast", world, 100, 15_000, stream=COMPUTE_STREAM)
        with program.range("aten::item", "operator"):
            program.sync("cudaStreamSynchronize", after=(got,))
        optimizer(program, (got,))

    return noisy_job(ranks, steps, step, (world, *rows), faults, noise)
