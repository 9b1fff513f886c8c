"""Jobs as they also are: two in one folder, pipelines side by side, messages of other groups, exchanges in a row."""

from collections.abc import Sequence

import numpy as np

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, microbatch, one_forward_one_backward, optimizer


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


def two_jobs(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, layer_ns: Sequence[int] = (300_000, 420_000)
) -> Job:
    """Two jobs on one host, recorded together: the first half of the ranks know nothing of the other."""
    halves = [Group(str(half), tuple(range(half * ranks, (half + 1) * ranks))) for half in (0, 1)]

    def step(program: Program, number: int) -> None:
        half = program.rank // ranks
        load(program, faults, number)
        reduced = -1
        for layer in range(10):
            made = layer_of(program, "aten::linear", f"model{half}_gemm", layer_ns[half], 15_000)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", halves[half], 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(2 * ranks, steps, step, (*halves,), faults)


def beside(ranks: int = 4, steps: int = 5, faults: Faults = (), *, extra: tuple[int, ...] = (1, 2)) -> Job:
    """Data parallel, but some ranks also exchange something of their own before backward, while the fault `link` is."""
    world, own = Group("0", tuple(range(ranks))), Group("1", extra, "embeddings")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(6):
            layer_of(program, "aten::linear", "forward_gemm", 250_000, 15_000)
            if layer == 1:
                strike(program, faults, number)
        needed: tuple[int, ...] = ()
        extra_ns = time_ns(faults, "link", program.rank, number)
        if extra_ns:
            needed = (program.collective("all_gather", own, 64_000_000, extra_ns, stream=COMM_STREAM + 1,
                                         after=(program.launched - 1,)),)  # fmt: skip
        reduced = -1
        for _ in range(6):
            with program.range("aten::linear_backward", "operator"):
                program.host(15_000)
                made = program.kernel("backward_gemm", 500_000, after=needed)
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world, own), faults)


def links(rows: int = 3, columns: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Hybrid sharding; a row's gathers take longer where its links are slow (`link`)."""
    inner = [Group(f"shard{n}", tuple(range(n * columns, (n + 1) * columns)), "shard") for n in range(rows)]
    outer = [Group(f"rep{n}", tuple(range(n, rows * columns, columns)), "replicate") for n in range(columns)]

    def step(program: Program, number: int) -> None:
        row = program.rank // columns
        load(program, faults, number)
        last = -1
        for _ in range(8):
            program.host(10_000)
            slow_ns = time_ns(faults, "link", program.rank, number) // 8
            gathered = program.collective("all_gather", inner[row], 8_000_000, 60_000 + slow_ns)
            with program.range("aten::linear", "operator"):
                last = program.kernel("gemm", 250_000, after=(gathered,))
        reduced = program.collective("all_reduce", outer[program.rank % columns], 8_000_000, 100_000,
                                     stream=COMM_STREAM + 1, after=(last,))  # fmt: skip
        optimizer(program, (reduced,))

    return job_of(rows * columns, steps, step, (*inner, *outer), faults)


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


def pp_dp(
    stages: int = 3,
    data: int = 2,
    steps: int = 4,
    faults: Faults = (),
    *,
    microbatches: int = 6,
    heavy: tuple[int, float] = (0, 1.0),
) -> Job:
    """Pipelines side by side whose stages reduce their gradients with each other; one stage may be heavy, by a factor."""
    lines = [Group(f"pp{n}", tuple(range(n * stages, (n + 1) * stages)), "pp") for n in range(data)]
    across = [Group(f"dp{n}", tuple(range(n, stages * data, stages)), "dp") for n in range(stages)]

    def step(program: Program, number: int) -> None:
        line, stage = divmod(program.rank, stages)
        load(program, faults, number)
        for place, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, microbatches, 1)):
            forward_ns = round(500_000 * (heavy[1] if stage == heavy[0] else 1))
            microbatch(program, lines[line], stage, stages, forward_ns, is_forward=is_forward)
            if place == 1:
                strike(program, faults, number)
        reduced = program.collective("all_reduce", across[stage], 8_000_000, 400_000, stream=COMM_STREAM + 8,
                                     after=(program.launched - 2,))  # fmt: skip
        optimizer(program, (reduced,))

    return job_of(stages * data, steps, step, (*lines, *across), faults)


def lengths(ranks: int = 8, steps: int = 8, faults: Faults = (), *, spread: float = 0.25, seed: int = 3) -> Job:
    """Data parallel with sequences of random lengths: every rank's compute differs from step to step."""
    world = Group("0", tuple(range(ranks)))
    factor = 1 + spread * np.random.default_rng(seed).uniform(-1, 1, (ranks, steps))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(8):
            long = factor[program.rank, number]
            shapes = f"[[{round(4096 * long)}, 768], [768, 768]]"
            made = layer_of(program, "aten::linear", "gemm", round(600_000 * long), 15_000, shapes)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 100_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


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


def accumulating(ranks: int = 4, steps: int = 4, faults: Faults = (), *, micro: int = 4) -> Job:
    """Gradients of several micro-steps, reduced in the last."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for place in range(micro):
            for layer in range(8):
                name = "forward_gemm" if layer < 4 else "backward_gemm"
                made = layer_of(program, "aten::linear", name, 300_000, 15_000)
                if place == 1 and layer == 1:
                    strike(program, faults, number)
                if place == micro - 1 and layer >= 4:
                    reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def logging(ranks: int = 4, steps: int = 6, faults: Faults = (), *, every: int = 2) -> Job:
    """Data parallel that reads its loss on every rank now and then."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(10):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 15_000)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        if number % every == 0:
            with program.range("aten::item", "operator"):
                program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize", after=(program.launched - 1,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def broadcasts(ranks: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Rank 0 sends every step's inputs to the others; then they reduce gradients."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        strike(program, faults, number)
        sent = program.collective("broadcast", world, 4_000_000, 80_000, after=(program.launched - 1,))
        reduced = -1
        for _ in range(6):
            with program.range("aten::linear", "operator"):
                program.host(15_000)
                made = program.kernel("gemm", 500_000, after=(sent,))
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def averaging(ranks: int = 4, steps: int = 8, faults: Faults = (), *, every: int = 3) -> Job:
    """Local steps; parameters are averaged over all ranks in every third of them, after the optimizer."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 15_000)
            if layer == 1:
                strike(program, faults, number)
        optimizer(program, (made,))
        if number % every == every - 1:
            needed: tuple[int, ...] = (program.launched - 1,)
            for _ in range(10):
                needed = (program.collective("all_reduce", world, 4_000_000, 200_000, after=needed),)

    return job_of(ranks, steps, step, (world,), faults)
