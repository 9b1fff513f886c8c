"""Jobs whose hosts stop for something: garbage, other threads, each other, work around the step."""

import random

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import SHAPES, after_of, job_of, layer_of, noisy_job, optimizer


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


def pausing(ranks: int = 8, steps: int = 8, faults: Faults = (), *, chance_of: float = 0.0, pause_ns: int = 5_000_000, seed: int = 1,
            noise: Noise | None = None) -> Job:  # fmt: skip
    """Tensor within data parallel, read once a step; hosts pause with a chance for the interpreter's garbage."""
    rows = adjacent("tp", 2, ranks // 2)
    columns = strided("dp", ranks // 2, 2)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // 2], columns[program.rank % 2]
        does_pause = random.Random(f"{seed} {program.rank} {number}").random() < chance_of
        load(program, faults, number)
        for layer in range(12):
            made = after_of(program, "aten::mm", "gemm", 260_000, (program.launched - 1,))
            if layer == 5:
                strike(program, faults, number)
                if does_pause:
                    program.sync("cudaStreamSynchronize")
                    program.host(pause_ns, "gc.collect", "frame")
            made = program.collective("all_reduce", row, 2_000_000, 40_000, after=(program.launched - 1,))
            program.kernel("residual", 15_000, after=(made,))
        made = program.collective("all_reduce", column, 16_000_000, 250_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (made,))
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize")

    return noisy_job(ranks, steps, step, (*rows, *columns), faults, noise, ends_synced=False)


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


def decoding_aside(ranks: int = 4, steps: int = 4, faults: Faults = (), *, times: int = 4, aside: str = "prefetch.py(41): decode",
                   layers: int = 24) -> Job:  # fmt: skip
    """Another thread's Python (`gil`) holds the interpreter, while the main thread does nothing that is recorded."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        each_ns = time_ns(faults, "gil", program.rank, number) // times
        load(program, faults, number)
        for layer in range(layers):
            if each_ns and layer % (layers // times) == 2:
                if aside:
                    program.aside(each_ns, aside)
                program.host(each_ns, "")
            made = layer_of(program, "aten::linear", "gemm", 110_000, 20_000, SHAPES)
            reduced = program.collective("all_reduce", world, 1_000_000, 25_000, after=(made,))
            program.kernel("residual", 8_000, after=(reduced,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def saves_in_thread(ranks: int = 4, steps: int = 6, faults: Faults = (), *, kernels: int = 40) -> Job:
    """Rank 0 copies its state out and writes it in another thread, which holds the interpreter: `host` is what it loses."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        lost_ns = time_ns(faults, "host", program.rank, number)
        load(program, (), number)
        if lost_ns:
            program.copy("DtoH", 256 << 20, 2_000_000, stream=COPY_STREAM + 2)
            program.aside(lost_ns + 4_000_000, "checkpoint.py(30): write")
        for _ in range(kernels):
            made = layer_of(program, "aten::linear", "gemm", 120_000, 12_000 + lost_ns // kernels, SHAPES)
        made = program.collective("all_reduce", world, 8_000_000, 300_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), ())


def with_barrier(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """A barrier before each step's forward pass, after the batch is loaded."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        made = program.collective("all_reduce", world, 1, 15_000, stream=COMPUTE_STREAM)
        program.sync("cudaStreamSynchronize", after=(made,))
        for layer in range(8):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 12_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
            made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (made,))

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
