"""Jobs that only generate: decoding, drafts, prefill apart, beams, stages."""

import random
from collections.abc import Sequence

from tests.simulator.faults import Faults, strike, time_ns
from tests.simulator.noise import Noise, noisy
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Comm, Group, Instruction, Job, Program
from tests.simulator.workloads import after_of, job_of, layer_of, noisy_job

_NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


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

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def token_by_token(stages: int = 4, steps: int = 6, faults: Faults = (), *, tokens: int = 6, batches: int = 4, ns: int = 350_000,
                   noise: Noise | None = None) -> Job:  # fmt: skip
    """Decoding by stages: as many batches are under way as there are stages; the last one hands tokens to the first."""
    world = Group("0", tuple(range(stages)), "pp")

    def step(program: Program, number: int) -> None:
        stage = program.rank
        with program.range("schedule"):
            program.host(60_000, "scheduler.py(180): schedule", "frame")
        for token in range(tokens * batches):
            needed: tuple[int, ...] = ()
            if stage or token >= batches:
                needed = (program.exchange(world, 100_000, 15_000, receives=((stage - 1) % stages,)),)
            made = -1
            for place in range(3):
                made = after_of(program, "aten::mm", "gemm", ns // 3, needed if not place else (), 9_000,
                                "[[64, 4096], [4096, 4096]]")  # fmt: skip
            if token == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if stage < stages - 1 or token < (tokens - 1) * batches:
                program.exchange(
                    world, 100_000, 15_000, sends=((stage + 1) % stages,), stream=COMM_STREAM + 1, after=(made,)
                )

    return noisy_job(stages, steps, step, (world,), faults, noise)
