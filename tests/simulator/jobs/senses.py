"""Models of more than text: pictures and texts held against each other, as many frames as a sample happens to have."""

import random

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, after_of, layer_of, noisy_job, optimizer


def contrastive(
    ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 5, noise: Noise | None = None
) -> Job:
    """Two towers; features of all ranks are gathered, and each holds its own against them.

    `whole`: a rank computes the whole matrix of similarities, which takes so much longer.
    """
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for tower, ns in (("visual", 320_000), ("text", 110_000)):
            with program.range(tower):
                for layer in range(layers):
                    layer_of(program, "aten::linear", f"{tower}_gemm", ns, 11_000, WIDE_SHAPES)
                    if layer == 1 and tower == "visual":
                        strike(program, faults, number)
        got = tuple(
            program.collective("all_gather", world, 1_000_000, 70_000, after=(program.launched - 1,)) for _ in range(2)
        )
        more_ns = time_ns(faults, "whole", program.rank, number)
        rows = 1024 * ranks if more_ns else 1024
        after_of(program, "aten::mm", "similarity_gemm", 120_000 + more_ns // 2, got, 11_000,
                 f"[[{rows}, 1024], [1024, {1024 * ranks}]]")  # fmt: skip
        after_of(program, "aten::_log_softmax", "softmax_warp", 80_000 + more_ns // 2, (), 9_000,
                 f"[[{rows}, {1024 * ranks}]]")  # fmt: skip
        for tower, ns in (("text", 220_000), ("visual", 640_000)):
            for _ in range(layers):
                made = layer_of(program, "AddmmBackward0", f"{tower}_backward", ns, 11_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 20_000_000, 350_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def framed(ranks: int = 8, steps: int = 6, faults: Faults = (), *, spread: int = 0, layers: int = 4, seed: int = 0,
           noise: Noise | None = None) -> Job:  # fmt: skip
    """An encoder runs once a frame, and a sample has 8 of them, `spread` more or fewer by chance; then a sharded model.

    `film`: a rank's samples have more frames, by what they take longer.
    """
    world = Group("0", tuple(range(ranks)), "fsdp")
    frame_ns = 150_000

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        frames = 8 + random.Random(f"{seed} {program.rank} {number}").randint(-spread, spread)
        frames += time_ns(faults, "film", program.rank, number) // frame_ns
        with program.range("encoder"):
            for _ in range(frames):
                layer_of(program, "aten::cudnn_convolution", "cudnn_patches", 30_000, 8_000, "[[3, 448, 448]]")
                layer_of(program, "aten::linear", "encoder_gemm", frame_ns - 30_000, 8_000, "[[1024, 1152]]")
        for is_backward in (False, True):
            for layer in range(layers):
                got = program.collective("all_gather", world, 10_000_000, 90_000)
                name = "AddmmBackward0" if is_backward else "aten::linear"
                made = after_of(program, name, "gemm", 700_000 if is_backward else 350_000, (got,), 11_000,
                                WIDE_BACK_SHAPES if is_backward else WIDE_SHAPES)  # fmt: skip
                if layer == 1 and not is_backward:
                    strike(program, faults, number)
                if is_backward:
                    made = program.collective(
                        "reduce_scatter", world, 10_000_000, 100_000, stream=COMM_STREAM + 1, after=(made,)
                    )
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
