"""Jobs whose ranks or steps have batches or sequences of unlike lengths."""

import random

import numpy as np

from tests.simulator.faults import Faults, factor, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import after_of, job_of, layer_of, noisy_job, optimizer


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


def lengths_anew(ranks: int = 4, steps: int = 8, faults: Faults = (), *, seed: int = 11) -> Job:
    """Sharded, each rank's sequences as long as they come; the capture has no shapes."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)
    times = {(rank, step): chance.lognormvariate(0, 0.25) for rank in range(ranks) for step in range(steps)}

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(10):
            gathered = program.collective("all_gather", world, 8_000_000, 60_000)
            with program.range("aten::linear", "operator"):
                program.host(15_000)
                made = program.kernel("gemm", round(500_000 * times[program.rank, number]), after=(gathered,))
            last = program.collective("reduce_scatter", world, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults)


def lengths_and_faults(
    ranks: int = 4, steps: int = 8, faults: Faults = (), *, spread: float = 0.2, seed: int = 0
) -> Job:
    """Data parallel with sequences of random lengths, another one on each rank and in each step, and faults on top."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)
    times = {(rank, step): 1 + chance.uniform(-spread, spread) for rank in range(ranks) for step in range(steps)}

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        factor = times[program.rank, number]
        shapes = f"[[{round(4096 * factor)}, 768], [768, 768]]"
        reduced = -1
        for layer in range(10):
            with program.range("aten::linear", "operator", shapes):
                program.host(15_000)
                made = program.kernel("gemm", round(500_000 * factor), blocks=round(4096 * factor))
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def packed(
    ranks: int = 4,
    steps: int = 4,
    faults: Faults = (),
    *,
    spread: float = 0.0,
    seed: int = 2,
    noise: Noise | None = None,
) -> Job:
    """Packed sequences; attention's time goes with the squares of lengths, drawn by rank and step; `long`: a rank's are longer."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        own = random.Random(f"{seed} {program.rank} {number}").uniform(1 - spread, 1 + spread)
        own *= 1 + time_ns(faults, "long", program.rank, number) / 1e9
        longest = round(2048 * own)
        load(program, faults, number)
        held = program.collective("all_gather", world, 20_000_000, 200_000)
        for layer in range(10):
            ready, held = held, program.collective("all_gather", world, 20_000_000, 200_000)
            after_of(program, "aten::linear", "gemm", 300_000, (ready,))
            made = after_of(program, "aten::_flash_attention_forward", "flash_fwd_kernel", round(250_000 * own * own), (),
                            shapes=f"[[8192, 16, 128], [{longest}]]")  # fmt: skip
            if layer >= 5:
                made = program.collective(
                    "reduce_scatter", world, 20_000_000, 200_000, stream=COMM_STREAM + 1, after=(made,)
                )
            if layer == 1:
                strike(program, faults, number)
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def lengthening(ranks: int = 4, steps: int = 6, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """A curriculum: the sequences of all ranks grow from step to step."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        length = 1024 + 256 * number
        load(program, faults, number)
        for layer in range(12):
            gathered = program.collective("all_gather", world, 12_000_000, 130_000)
            made = after_of(
                program, "aten::linear", "gemm", 200 * length, (gathered,), shapes=f"[[{length}, 2048], [2048, 2048]]"
            )
            made = layer_of(program, "aten::_flash_attention_forward", "flash_fwd_kernel", length * length // 8, 14_000,
                            f"[[1, {length}, 16, 128]]")  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
            if layer >= 6:
                made = program.collective(
                    "reduce_scatter", world, 12_000_000, 140_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def short_batches(ranks: int = 4, steps: int = 5, faults: Faults = (), *, short: int = 3) -> Job:
    """One rank's batches are half as long as everybody else's: it waits, and nobody waits for any one rank."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        times = 0.5 if program.rank == short else 1.0
        shapes = f"[[{round(4096 * times)}, 768], [768, 768]]"
        for _ in range(10):
            made = layer_of(program, "aten::linear", "gemm", round(500_000 * times), 15_000, shapes)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def other_batch(ranks: int = 8, steps: int = 4, faults: Faults = ()) -> Job:
    """Sharded; a rank with the fault `batch` has so many times the samples: larger shapes, longer kernels, larger grids."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        times = factor(faults, "batch", program.rank, number)
        shapes = f"[[{round(4096 * times)}, 768], [768, 768]]"
        load(program, faults, number)
        for layer in range(12):
            gathered = program.collective("all_gather", world, 8_000_000, 60_000)
            operator = "aten::linear" if layer < 6 else "autograd::engine::evaluate_function: AddmmBackward0"
            with program.range(operator, "operator", shapes):
                program.host(15_000)
                made = program.kernel("nvjet_tst_128x256", round(500_000 * times), after=(gathered,),
                                      blocks=round(256 * times))  # fmt: skip
            last = program.collective("reduce_scatter", world, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults)


def joined_last(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, short: tuple[int, ...] = (1, 3), noise: Noise | None = None
) -> Job:
    """In the last step some ranks have half a batch."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        rows = 2048 if number == steps - 1 and program.rank in short else 4096
        load(program, faults, number)
        for layer in range(14):
            made = layer_of(program, "aten::linear", "gemm", rows * 100, 14_000, f"[[{rows}, 2048], [2048, 2048]]")
            if layer == 1:
                strike(program, faults, number)
            made = program.collective("all_reduce", world, 4_000_000, 110_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
