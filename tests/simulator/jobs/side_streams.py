"""Jobs that do more than communicate beside their compute: optimizers, evaluation, offloading, on streams of their own."""

from dataclasses import replace

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, after_of, layer_of, noisy_job, optimizer


def other_streams(
    ranks: int = 4,
    steps: int = 5,
    faults: Faults = (),
    *,
    renumbered: tuple[int, ...] = (2,),
    noise: Noise | None = None,
) -> Job:
    """Sharded, gathered ahead; on some ranks all streams have other numbers."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        held = program.collective("all_gather", world, 12_000_000, 100_000)
        for layer in range(6):
            ready, held = held, program.collective("all_gather", world, 12_000_000, 100_000)
            after_of(program, "aten::linear", "forward_gemm", 300_000, (ready,))
            if layer == 1:
                strike(program, faults, number)
        for _ in range(6):
            made = after_of(program, "AddmmBackward0", "backward_gemm", 600_000, (held,), 14_000, WIDE_BACK_SHAPES)
            made = program.collective(
                "reduce_scatter", world, 12_000_000, 100_000, stream=COMM_STREAM + 1, after=(made,)
            )
        optimizer(program, (made,))

    job = noisy_job(ranks, steps, step, (world,), faults, noise)
    programs = tuple(_renumbered(each) if each.rank in renumbered else each for each in job.programs)
    return replace(job, programs=programs)


def _renumbered(program: Program) -> Program:
    made = [replace(each, stream=each.stream + 6) if each.what == "launch" else each for each in program.instructions]
    return Program(program.rank, made, program.launched)


def stepped_on_host(ranks: int = 4, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Gradients go to the host a layer at a time behind backward, are stepped there, and parameters come back.

    `bus`: a rank's copies take longer, a step; `cpu`: its optimizer does.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        bus_ns = 180_000 + time_ns(faults, "bus", program.rank, number) // 12
        load(program, faults, number)
        for layer in range(6):
            layer_of(program, "aten::linear", "forward_gemm", 300_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        copied = []
        for _ in range(6):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 600_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 6_000_000, 160_000, after=(made,))
            copied.append(program.copy("DtoH", 8 << 20, bus_ns, after=(made,)))
        for made in copied:
            program.sync("cudaEventSynchronize", after=(made,))
            with program.range("Optimizer.step#CPUAdam.step"):
                program.host(300_000 + time_ns(faults, "cpu", program.rank, number) // 6, "aten::_fused_adamw_")
            program.copy("HtoD", 8 << 20, bus_ns, stream=COPY_STREAM + 1)

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def gathered_by_one(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, is_met: bool = False, noise: Noise | None = None
) -> Job:
    """Logits are gathered, and rank 0 computes metrics of all on its host, while the others go on; or all meet after it."""
    world, metrics = Group("0", tuple(range(ranks))), Group("1", tuple(range(ranks)), "metrics")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 250_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        got = program.collective("all_gather", metrics, 400_000, 30_000, stream=COMM_STREAM + 1,
                                 after=(program.launched - 1,))  # fmt: skip
        for _ in range(8):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 500_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 6_000_000, 160_000, after=(made,))
        optimizer(program, (made,))
        if metrics_ns := time_ns(faults, "metrics", program.rank, number):
            program.copy("DtoH", 1 << 20, 60_000, after=(got,))
            program.sync("cudaEventSynchronize", after=(program.launched - 1,))
            program.host(metrics_ns, "metrics.py(61): compute_auc", "frame")
        if is_met:
            program.collective("all_reduce", metrics, 1, 15_000, stream=COMM_STREAM + 1, after=(program.launched - 1,))

    return noisy_job(ranks, steps, step, (world, metrics), faults, noise, ends_synced=is_met)


def twice_on_one_stream(ranks: int = 4, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """All communication on the stream that computes; `extra`: two ranks reduce something of their own in each layer."""
    world, pair = Group("0", tuple(range(ranks))), Group("1", (0, 1), "pair")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 250_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(8):
            layer_of(program, "AddmmBackward0", "backward_gemm", 500_000, 14_000, WIDE_BACK_SHAPES)
            extra_ns = time_ns(faults, "extra", program.rank, number) // 8
            if extra_ns and program.rank in pair.ranks:
                program.collective("all_reduce", pair, 4_000_000, extra_ns, stream=COMPUTE_STREAM)
        program.collective("all_reduce", world, 48_000_000, 900_000, stream=COMPUTE_STREAM)
        optimizer(program, ())

    return noisy_job(ranks, steps, step, (world, pair), faults, noise)
