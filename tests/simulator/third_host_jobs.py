"""A third lot of kinds that no other file has: serving, two optimizers, phases on the same ranks, micro-steps, workers."""

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise, noisy
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Comm, Group, Instruction, Job, Program
from tests.simulator.third_jobs import after_of, hit
from tests.simulator.unseen_jobs import SHAPES, drawn
from tests.simulator.workloads import job_of, layer_of, optimizer

_NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def graph_with(program: Program, parts: Sequence[tuple[str, int]], group: Group, ns: int) -> int:
    """One launch of a CUDA graph whose kernels are followed by an all-reduce each, of which nothing else is recorded."""
    first = program.launched
    for name, kernel_ns in parts:
        for each in (
            Instruction("launch", kernel_ns, name, "compute", COMPUTE_STREAM, graph=first),
            Instruction("launch", ns, "all_reduce", "comm", COMPUTE_STREAM, comm=Comm("all_reduce", group, 65_536, kernel=_NCCL),
                        graph=first),
        ):  # fmt: skip
            program.instructions.append(each)
            program.launched += 1
    return program.launched - 1


def served(ranks: int = 4, iterations: int = 24, faults: Faults = (), *, layers: int = 8, every: int = 6, is_eager: bool = False,
           schedule_ns: int = 250_000, seed: int = 3, noise: Noise | None = None) -> Job:  # fmt: skip
    """Serving in tensor parallel: now and then a prefill kernel by kernel, else decoding by a graph; lengths differ.

    `plan`: what a rank's scheduler takes more.
    """
    world = Group("0", tuple(range(ranks)), "tp")
    chance = random.Random(seed)
    running = [chance.randint(16, 64) for _ in range(iterations)]

    def step(program: Program, number: int) -> None:
        with program.range("schedule"):
            program.host(
                schedule_ns + time_ns(faults, "plan", program.rank, number), "scheduler.py(180): schedule", "frame"
            )
        batch = running[number]
        if number % every == 0 or is_eager:
            many = 2_000 if number % every == 0 else batch
            for layer in range(layers):
                layer_of(program, "aten::mm", "prefill_gemm" if many == 2_000 else "decode_gemm", 25_000 + 150 * many, 9_000,
                                f"[[{many}, 4096], [4096, 4096]]")  # fmt: skip
                program.collective("all_reduce", world, 4096 * many, 8_000 + 30 * many, stream=COMPUTE_STREAM)
                if layer == 1:
                    strike(program, faults, number)
        else:
            program.host(20_000, "cuda_graph.py(90): replay", "frame")
            graph_with(
                program, [(f"decode_{place % 2}", 30_000 + 300 * batch) for place in range(2 * layers)], world, 9_000
            )
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 4 * batch, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize")

    job = job_of(ranks, iterations, step, (world,), faults, has_steps=False, ends_synced=False)
    return noisy(job, noise or Noise(), faults)


def drafted(ranks: int = 4, steps: int = 8, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """A rank with the fault `draft` runs the draft model alone, and sends the others its tokens; all verify them."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        ns = time_ns(faults, "draft", program.rank, number)
        with program.range("draft"):
            for _ in range(12 if ns else 0):
                layer_of(program, "aten::mm", "draft_gemm", ns // 12, 9_000, "[[8, 1024], [1024, 1024]]")
            got = program.collective("broadcast", world, 64, 12_000, stream=COMPUTE_STREAM)
        with program.range("verify"):
            for layer in range(12):
                made = after_of(
                    program,
                    "aten::mm",
                    "verify_gemm",
                    160_000,
                    (got,) if not layer else (),
                    9_000,
                    "[[40, 4096], [4096, 4096]]",
                )
                program.collective("all_reduce", world, 160_000, 14_000, stream=COMPUTE_STREAM, after=(made,))
        with program.range("aten::item", "operator"):
            program.sync("cudaStreamSynchronize")

    return drawn(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def adversaries(
    ranks: int = 4, steps: int = 9, faults: Faults = (), *, every: int = 4, noise: Noise | None = None
) -> Job:
    """A discriminator and a generator, each with its optimizer; every so many steps gradients are penalised, on all ranks.

    `augment`: a rank's host prepares its pictures for longer, before the discriminator.
    """
    one, other = Group("0", tuple(range(ranks)), "D"), Group("1", tuple(range(ranks)), "G")

    def half(program: Program, group: Group, name: str, many: int, stream: int) -> None:
        for _ in range(many):
            layer_of(program, "aten::cudnn_convolution", f"{name}_forward", 220_000, 14_000, SHAPES)
        for _ in range(many):
            made = layer_of(program, "aten::convolution_backward", f"{name}_backward", 440_000, 14_000, SHAPES)
            made = program.collective("all_reduce", group, 5_000_000, 150_000, stream=stream, after=(made,))
        optimizer(program, (made,))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        augment_ns = time_ns(faults, "augment", program.rank, number)
        if augment_ns:
            with program.range("augment"):
                program.host(augment_ns, "augment.py(77): __call__", "frame")
        half(program, one, "discriminator", 6, COMM_STREAM)
        if number % every == 0:
            for _ in range(6):
                layer_of(program, "aten::_convolution_double_backward", "double_backward", 500_000, 14_000, SHAPES)
        half(program, other, "generator", 8, COMM_STREAM + 1)

    return drawn(ranks, steps, step, (one, other), faults, noise, ends_synced=False)


def latents(ranks: int = 4, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Diffusion on latents that were made before; a rank without them (`encode`) encodes its pictures each time."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        ns = time_ns(faults, "encode", program.rank, number)
        with program.range("encode"):
            for _ in range(8 if ns else 0):
                layer_of(
                    program,
                    "aten::cudnn_convolution",
                    "vae_conv",
                    ns // 8,
                    14_000,
                    "[[4, 128, 512, 512], [128, 128, 3, 3]]",
                )
        for _ in range(7):
            layer_of(program, "aten::linear", "unet_forward", 350_000, 14_000, SHAPES)
        for _ in range(7):
            made = layer_of(program, "aten::linear_backward", "unet_backward", 700_000, 14_000, SHAPES)
            made = program.collective("all_reduce", world, 9_000_000, 260_000, after=(made,))
        optimizer(program, (made,))
        layer_of(program, "aten::_foreach_lerp_", "ema", 150_000, 20_000, "")

    return drawn(ranks, steps, step, (world,), faults, noise)


def preferring(replicas: int = 4, steps: int = 5, faults: Faults = (), *, least: int = 16, spread: int = 0, seed: int = 9,
               noise: Noise | None = None) -> Job:  # fmt: skip
    """Pairs of ranks generate in tensor parallel, hosts score the answers, all train. `score`: a rank's scoring takes longer."""
    rows = [Group(f"tp{n}", (2 * n, 2 * n + 1), "tp") for n in range(replicas)]
    world = Group("0", tuple(range(2 * replicas)), "dp")

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // 2]
        tokens = least + random.Random(f"{seed} {row.name} {number}").randint(0, spread)
        with program.range("generate"):
            for _ in range(tokens):
                layer_of(program, "aten::mm", "decode_gemm", 60_000, 12_000, "[[32, 4096], [4096, 4096]]")
                program.collective("all_reduce", row, 130_000, 12_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize")
        with program.range("score"):
            program.host(1_200_000 + time_ns(faults, "score", program.rank, number), "reward.py(52): score", "frame")
            layer_of(program, "aten::linear", "reward_gemm", 600_000, 14_000, SHAPES)
        got = program.collective("all_gather", world, 400_000, 40_000, after=(program.launched - 1,))
        with program.range("train"):
            for layer in range(8):
                made = after_of(program, "aten::linear", "train_gemm", 600_000, (got,) if not layer else ())
                made = program.collective(
                    "all_reduce", world, 8_000_000, 200_000, stream=COMM_STREAM + 1, after=(made,)
                )
            optimizer(program, (made,))

    return drawn(2 * replicas, steps, step, (*rows, world), faults, noise)


def micro_steps(ranks: int = 8, steps: int = 4, faults: Faults = (), *, micro: int = 4, writes: bool = False,
                noise: Noise | None = None) -> Job:  # fmt: skip
    """Gradients are exchanged in the last micro-step alone. `bus`: what a rank's copies of the micro-batches take more.

    With `writes` a thread of every host writes a checkpoint meanwhile; `snapshot`: a rank's state is copied out beside.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        bus_ns = time_ns(faults, "bus", program.rank, number) // micro
        if hit(faults, "snapshot", program.rank, number):
            program.copy("DtoH", 400 << 20, 8_000_000, stream=COPY_STREAM + 2)
        if writes or hit(faults, "snapshot", program.rank, number):
            program.aside(12_000_000, "async_ckpt.py(44): write")
        for part in range(micro):
            load(program, faults, number)
            with program.range("aten::to", "operator"):
                program.copy("HtoD", 6 << 20, 150_000 + bus_ns, stream=COMPUTE_STREAM)
            for layer in range(5):
                layer_of(program, "aten::linear", "forward_gemm", 200_000, 14_000, SHAPES)
                if layer == 1 and part == 2:
                    strike(program, faults, number)
            for _ in range(5):
                made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000, 14_000, SHAPES)
                if part == micro - 1:
                    made = program.collective("all_reduce", world, 9_000_000, 220_000, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def small_ones(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 24, noise: Noise | None = None
) -> Job:
    """Tensor parallel whose kernels are shorter than their launches; the loss is read at the step's end."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            for name in ("norm", "mul", "add"):
                layer_of(program, f"aten::{name}", f"{name}_kernel", 6_000, 13_000, SHAPES)
            made = layer_of(program, "aten::linear", "gemm", 20_000, 16_000, SHAPES)
            program.collective("all_reduce", world, 300_000, 18_000, stream=COMPUTE_STREAM, after=(made,))
            if layer == 1:
                strike(program, faults, number)
        optimizer(program, ())
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize")

    return drawn(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def reads_once(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, small: int = 120, noise: Noise | None = None
) -> Job:
    """Large products, then many small kernels, launched ahead; with the fault `one` a rank reads a number between them."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(12):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 14_000, SHAPES)
        if hit(faults, "one", program.rank, number):
            with program.range("nn.Module: Router_0", "frame"), program.range("aten::item", "operator"):
                program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize")
        for place in range(small):
            made = layer_of(program, f"aten::small{place % 3}", f"small_{place % 3}", 7_000, 24_000, SHAPES)
        for _ in range(6):
            made = program.collective("all_reduce", world, 6_000_000, 150_000, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def compiled(ranks: int = 8, steps: int = 6, faults: Faults = (), *, noise: Noise | None = None, hosts: int = 0) -> Job:
    """Compiled layers; `compile`: a host compiles again, for new shapes, in the middle of forward. `hosts`: ranks of each."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(10):
            ns = time_ns(faults, "compile", program.rank, number) if layer == 3 else 0
            with program.range("Torch-Compiled Region: 3/0", "operator"):
                if ns:
                    with program.range("_compile.compile_inner (dynamo_timed)"):
                        program.host(ns, "torch/_inductor/codecache.py(900): compile", "frame")
                made = layer_of(program, "triton_red_fused_0", "triton_red_fused_0", 450_000, 14_000, "")
                if layer == 1:
                    strike(program, faults, number)
                made = program.collective("all_reduce", world, 6_000_000, 160_000, after=(made,))
        optimizer(program, (made,))

    job = drawn(ranks, steps, step, (world,), faults, noise)
    return replace(job, hosts=tuple(f"node{rank // hosts}" for rank in range(ranks))) if hosts else job
