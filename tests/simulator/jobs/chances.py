"""Jobs of which some steps are unlike others by design or by chance: layers dropped, overflows, larger batches, tails."""

import random

from tests.simulator.faults import Faults, factor, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, after_of, layer_of, noisy_job, optimizer


def ramped(ranks: int = 4, steps: int = 8, faults: Faults = (), *, since: int = 4, layers: int = 8,
           noise: Noise | None = None) -> Job:  # fmt: skip
    """From one step on batches are twice as large."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        times = 1 + (number >= since)
        load(program, faults, number)
        for layer in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 200_000 * times, 11_000, f"[[{4096 * times}, 2048]]")
            if layer == 1:
                strike(program, faults, number)
        for _ in range(layers):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 400_000 * times, 11_000,
                            f"[[{4096 * times}, 2048]]")  # fmt: skip
            made = program.collective("all_reduce", world, 8_000_000, 170_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def heavy_tailed(ranks: int = 8, steps: int = 6, faults: Faults = (), *, chance_of: float = 0.08, layers: int = 10,
                 noise: Noise | None = None) -> Job:  # fmt: skip
    """Sharded; now and then, by chance, a gather or a reduction takes eight times as long: packets are sent again."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        chance = random.Random(f"tail {number}")
        load(program, faults, number)
        for place in range(2 * layers):
            times = [8 if chance.random() < chance_of else 1 for _ in range(2)]
            got = program.collective("all_gather", world, 16_000_000, 120_000 * times[0])
            name, ns = ("aten::linear", 300_000) if place < layers else ("AddmmBackward0", 600_000)
            shapes = WIDE_SHAPES if place < layers else WIDE_BACK_SHAPES
            made = after_of(program, name, "gemm", ns, (got,), 11_000, shapes)
            if place == 1:
                strike(program, faults, number)
            if place >= layers:
                made = program.collective(
                    "reduce_scatter", world, 16_000_000, 130_000 * times[1], stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def crowded_hosts(ranks: int = 8, steps: int = 7, faults: Faults = (), *, layers: int = 40,
                  noise: Noise | None = None) -> Job:  # fmt: skip
    """Kernels of 22 µs beside hosts of 14 µs; `crowd`: workers that load take the cores, hosts take so many times as long."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        host_ns = round(9_000 * factor(faults, "crowd", program.rank, number))
        load(program, faults, number)
        for layer in range(3 * layers):
            made = layer_of(program, "aten::linear" if layer < layers else "AddmmBackward0", "small_gemm", 22_000,
                            host_ns, WIDE_SHAPES)  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
            if layer >= layers and layer % 10 == 9:
                made = program.collective("all_reduce", world, 2_000_000, 60_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def lopsided(ranks: int = 4, steps: int = 5, faults: Faults = (), *, is_met: bool = True, layers: int = 8,
             noise: Noise | None = None) -> Job:  # fmt: skip
    """`more`: a rank's forward takes longer; `less`: its backward takes less. `is_met`: ranks meet in each layer; else at the end."""
    world = Group("0", tuple(range(ranks)), "tp" if is_met else "dp")

    def step(program: Program, number: int) -> None:
        more_ns, less_ns = (time_ns(faults, what, program.rank, number) // layers for what in ("more", "less"))
        load(program, faults, number)
        for is_backward in (False, True):
            for layer in range(layers):
                before = (program.launched - 1,)
                got = (program.collective("all_gather", world, 8_000_000, 80_000, after=before),) if is_met else ()
                ns = 700_000 - less_ns if is_backward else 350_000 + more_ns
                shapes = f"[[{ns // 100}, 2048], [2048, 2048]]"
                name = "AddmmBackward0" if is_backward else "aten::linear"
                made = after_of(
                    program, name, "backward_gemm" if is_backward else "forward_gemm", ns, got, 11_000, shapes
                )
                if layer == 1 and not is_backward:
                    strike(program, faults, number)
        made = program.collective("all_reduce", world, 40_000_000, 600_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
