"""Jobs told apart by what comes how often: averages, validation, logs, recycling, timers, one graph a step."""

from tests.simulator.faults import Faults, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, after_of, layer_of, noisy_job, optimizer


def in_one_graph(ranks: int = 4, steps: int = 6, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Forward and backward are one CUDA graph, gradients one all-reduce, the optimizer another graph."""
    world = Group("0", tuple(range(ranks)))
    passes = [("forward_gemm", 300_000)] * 8 + [("backward_gemm", 600_000)] * 8

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        strike(program, faults, number)
        program.host(40_000, "cuda/graphs.py(88): replay", "frame")
        made = program.graph(passes)
        made = program.collective("all_reduce", world, 48_000_000, 900_000, stream=COMPUTE_STREAM, after=(made,))
        program.host(20_000)
        program.graph([("adam", 60_000)] * 4)

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def of_small_tensors(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, tensors: int = 40, noise: Noise | None = None
) -> Job:
    """A batch is many small tensors, each copied by itself from pageable memory, for which the host waits.

    `packed`: on all but some ranks it is one tensor.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        many = 1 if hit(faults, "packed", program.rank, number) else tensors
        program.host(30_000, "collate")
        for _ in range(many):
            with program.range("aten::to", "operator"):
                program.host(25_000)
                made = program.copy("HtoD", 1 << 16, 14_000, stream=COMPUTE_STREAM, memory="Pageable")
                program.sync("cudaStreamSynchronize", after=(made,))
        for layer in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(8):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 400_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def rows_from_host(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, look_ns: int = 1_500_000, noise: Noise | None = None
) -> Job:
    """Rows of embeddings are looked up in the host's memory, copied up, and their gradients back; `look`: a rank's takes longer."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        with program.range("aten::embedding_bag", "operator"):
            program.host(look_ns + time_ns(faults, "look", program.rank, number), "aten::_embedding_bag")
        rows = program.copy("HtoD", 32 << 20, 600_000, stream=COMPUTE_STREAM)
        for layer in range(8):
            after_of(program, "aten::linear", "forward_gemm", 250_000, (rows,))
            if layer == 1:
                strike(program, faults, number)
        for _ in range(8):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 500_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 4_000_000, 140_000, after=(made,))
        program.copy("DtoH", 32 << 20, 600_000)
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
