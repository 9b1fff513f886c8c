"""Inference in parts: prompts in chunks beside decoding with one driver, pictures in patches that are a step behind."""

import random

from tests.simulator.faults import Faults, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.workloads import after_of, layer_of, noisy_job


def chunked(ranks: int = 4, steps: int = 14, faults: Faults = (), *, layers: int = 6, seed: int = 5,
            noise: Noise | None = None) -> Job:  # fmt: skip
    """Tensor parallel: chunks of prompts beside tokens, as rank 0 plans and tells the others' hosts.

    `plan`: the driver takes longer; `swap`: a rank's blocks come back from its host's memory first.
    """
    world = Group("0", tuple(range(ranks)), "tp")
    chance = random.Random(seed)
    tokens = [32 + chance.choice((0, 0, 256, 512, 512)) for _ in range(steps)]

    def step(program: Program, number: int) -> None:
        if program.rank == 0:
            with program.range("schedule"):
                program.host(20_000 + time_ns(faults, "plan", 0, number), "scheduler.py(210): schedule", "frame")
        program.meet(world, "broadcast", 120_000)
        swap_ns = time_ns(faults, "swap", program.rank, number)
        if swap_ns:
            with program.range("swap_in"):
                program.copy("HtoD", 256 << 20, swap_ns, stream=COMPUTE_STREAM)
        for layer in range(layers):
            for name, ns in (
                ("aten::mm", 60_000 + 300 * tokens[number]),
                ("aten::linear", 50_000 + 250 * tokens[number]),
            ):
                made = layer_of(
                    program, name, f"{name[6:]}_gemm", ns, 8_000, f"[[{tokens[number]}, 4096], [4096, 4096]]"
                )
                if layer == 1 and name == "aten::mm":
                    strike(program, faults, number)
                program.collective("all_reduce", world, 4096 * tokens[number], 25_000, stream=COMPUTE_STREAM)
        made = layer_of(program, "aten::argmax", "argmax_kernel", 12_000, 8_000, f"[[{tokens[number]}, 128000]]")
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 256, 2_000, stream=COMPUTE_STREAM, after=(made,))
            program.sync("cudaStreamSynchronize", after=(program.launched - 1,))

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def patched(ranks: int = 4, steps: int = 8, faults: Faults = (), *, layers: int = 8, noise: Noise | None = None) -> Job:
    """Diffusion: each rank has a part of the picture; what it sees of the others' is a step old, and gathered beside.

    `wire`: gathers take longer, which the step behind hides.
    """
    world = Group("0", tuple(range(ranks)), "patches")
    held: dict[tuple[int, int], int] = {}

    def step(program: Program, number: int) -> None:
        slow_ns = time_ns(faults, "wire", program.rank, number) // layers
        program.host(60_000, "scheduler_ddim.py(300): step", "frame")
        for layer in range(layers):
            before = (held[program.rank, layer],) if number else ()
            after_of(program, "aten::cudnn_convolution", "cudnn_forward", 260_000, before, 9_000, "[[2, 640, 64, 64]]")
            made = layer_of(
                program, "aten::_flash_attention_forward", "flash_fwd_kernel", 240_000, 9_000, "[[2, 4096, 640]]"
            )
            if layer == 1:
                strike(program, faults, number)
            held[program.rank, layer] = program.collective(
                "all_gather", world, 3_000_000, 70_000 + slow_ns, after=(made,)
            )
        program.copy("DtoD", 1 << 20, 8_000, stream=COPY_STREAM, after=(made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)
