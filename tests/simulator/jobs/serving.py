"""Jobs that only generate: decoding, drafts, prefill apart, beams, stages."""

import random
from collections.abc import Sequence
from contextlib import nullcontext

from tests.simulator.faults import Faults, strike, time_ns
from tests.simulator.noise import Noise, noisy
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Comm, Group, Instruction, Job, Program
from tests.simulator.workloads import TOKEN_SHAPES, after_of, job_of, layer_of, noisy_job

_NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def continuous_batching(ranks: int = 4, iterations: int = 30, faults: Faults = (), *, layers: int = 6,
                        schedule_ns: int = 300_000, seed: int = 1) -> Job:  # fmt: skip
    """Tensor parallel serving without marked steps: prefills now and then, decodes of other lengths each time."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)
    tokens = [chance.choice((8, 8, 8, 12, 16, 700)) for _ in range(iterations)]

    def step(program: Program, number: int) -> None:
        with program.range("schedule"):
            program.host(
                schedule_ns + time_ns(faults, "host", program.rank, number), "scheduler.py(70): schedule", "frame"
            )
        for layer in range(layers):
            made = layer_of(program, "aten::mm", "gemm", 20_000 + 400 * tokens[number], 3_000,
                            f"[[{tokens[number]}, 4096], [4096, 4096]]")  # fmt: skip
            if layer == 1:
                strike(program, tuple(fault for fault in faults if fault.what != "host"), number)
                made = program.launched - 1
            reduced = program.collective("all_reduce", world, 4096 * tokens[number], 8_000, stream=7, after=(made,))
            program.kernel("flash_fwd_splitkv", 15_000 + 100 * tokens[number], after=(reduced,))
        with program.range("sample"), program.range("aten::item", "operator"):
            program.sync("cudaStreamSynchronize")

    return job_of(ranks, iterations, step, (world,), faults, has_steps=False, ends_synced=False)


def speculative(ranks: int = 2, steps: int = 8, faults: Faults = (), *, drafts: int = 4, layers: int = 6) -> Job:
    """A small model drafts tokens one by one, a large one verifies them; hosts read how many hold."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        with program.range("draft"):
            for _ in range(drafts):
                for _ in range(layers):
                    layer_of(program, "aten::mm", "draft_gemm", 5_000, 8_000, TOKEN_SHAPES)
                program.sync("cudaStreamSynchronize")
        with program.range("verify"):
            for layer in range(layers):
                made = layer_of(program, "aten::mm", "verify_gemm", 90_000, 8_000, TOKEN_SHAPES)
                if layer == 1:
                    strike(program, faults, number)
                    made = program.launched - 1
                program.collective("all_reduce", world, 100_000, 10_000, stream=7, after=(made,))
        with program.range("aten::item", "operator"):
            program.sync("cudaStreamSynchronize")
        program.host(60_000, "accept", "range")

    return job_of(ranks, steps, step, (world,), faults, ends_synced=False)


def prefill_apart(prefillers: int = 2, decoders: int = 2, steps: int = 6, faults: Faults = (), *,
                  prefill_ns: int = 6_000_000, decode_ns: int = 2_000_000) -> Job:  # fmt: skip
    """Some ranks prefill and send keys and values; each has a decoder that receives and decodes them."""
    world = Group("0", tuple(range(prefillers + decoders)))

    def step(program: Program, number: int) -> None:
        strike(program, faults, number)
        if program.rank < prefillers:
            with program.range("prefill"):
                for _ in range(10):
                    made = layer_of(
                        program, "aten::mm", "prefill_gemm", prefill_ns // 10, 10_000, "[[8192, 4096], [4096, 4096]]"
                    )
            program.exchange(world, 8_000_000, 80_000, sends=(program.rank + prefillers,), after=(made,))
            return
        got = program.exchange(world, 8_000_000, 80_000, receives=(program.rank - prefillers,))
        with program.range("decode"):
            for _ in range(20):
                program.host(5_000)
                program.kernel("decode_gemm", decode_ns // 20, after=(got,))
        with program.range("aten::item", "operator"):
            program.sync("cudaStreamSynchronize")

    return job_of(prefillers + decoders, steps, step, (world,), faults, ends_synced=False)


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


def decoded(
    ranks: int = 4, steps: int = 10, faults: Faults = (), *, layers: int = 10, noise: Noise | None = None
) -> Job:
    """Decoding in tensor parallel, kernel by kernel, a step for each token; the token is read at the end."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        for layer in range(layers):
            for name in ("rms_norm", "rope", "paged_attention"):
                layer_of(program, f"vllm::{name}", f"{name}_kernel", 7_000, 11_000, "[[16, 4096]]")
            made = layer_of(program, "aten::mm", "gemv", 22_000, 13_000, "[[16, 4096], [4096, 4096]]")
            if layer == 1:
                strike(program, faults, number)
            program.collective("all_reduce", world, 65_536, 11_000, stream=COMPUTE_STREAM, after=(made,))
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 64, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize")
        program.host(120_000, "engine.py(60): process_outputs", "frame")

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def apart(ranks: int = 4, iterations: int = 16, faults: Faults = (), *, layers: int = 5, seed: int = 6,
          noise: Noise | None = None) -> Job:  # fmt: skip
    """Serving: each rank attends to requests of its own, experts are spread over all; ranks go in step.

    `prompt`: a rank's iteration also holds a long prompt: its attention takes so much more.
    """
    world = Group("0", tuple(range(ranks)), "ep")

    def step(program: Program, number: int) -> None:
        batch = random.Random(f"{seed} {program.rank} {number}").randint(30, 34)
        more_ns = time_ns(faults, "prompt", program.rank, number) // layers
        tokens = batch + more_ns // 2_000
        with program.range("schedule"):
            program.host(200_000, "scheduler.py(180): schedule", "frame")
        for layer in range(layers):
            layer_of(program, "aten::mm", "qkv_gemm", 60_000, 8_000, f"[[{tokens}, 4096], [4096, 4096]]")
            layer_of(program, "vllm::unified_attention", "paged_attention", 2_000 * batch + more_ns, 8_000,
                            f"[[{tokens}, 32, 128]]")  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
            program.collective("all_to_all", world, 500_000, 40_000, stream=COMPUTE_STREAM)
            layer_of(program, "aten::_grouped_mm", "grouped_gemm", 150_000, 8_000, "[[128, 4096], [8, 4096, 1024]]")
            program.collective("all_to_all", world, 500_000, 40_000, stream=COMPUTE_STREAM)
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 4 * batch, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize", after=(program.launched - 1,))

    return noisy_job(ranks, iterations, step, (world,), faults, noise, ends_synced=False)


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


def searched(
    ranks: int = 4, steps: int = 10, faults: Faults = (), *, layers: int = 8, noise: Noise | None = None
) -> Job:
    """Translation in tensor parallel: the beams are sorted out on every host alike; `beams`: a rank's host takes longer."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        for layer in range(layers):
            made = layer_of(program, "aten::mm", "gemm", 70_000, 8_000, "[[20, 4096], [4096, 4096]]")
            if layer == 1:
                strike(program, faults, number)
            program.collective("all_reduce", world, 80_000, 14_000, stream=COMPUTE_STREAM, after=(made,))
        with program.range("aten::topk", "operator", "[[5, 32000]]"):
            program.host(9_000)
            program.kernel("topk_kernel", 40_000)
        program.copy("DtoH", 400, 2_000, stream=COMPUTE_STREAM)
        program.sync("cudaStreamSynchronize", after=(program.launched - 1,))
        beams_ns = 150_000 + time_ns(faults, "beams", program.rank, number)
        program.host(beams_ns, "beam_search.py(212): process", "frame")

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def in_bursts(ranks: int = 2, iterations: int = 20, faults: Faults = (), *, every: int = 6, wait_ns: int = 30_000_000,
              is_marked: bool = True, noise: Noise | None = None) -> Job:  # fmt: skip
    """Serving by graphs as vLLM marks it; after some iterations no requests are left, and engines wait for new ones.

    `plan`: what a rank's scheduler takes more, between iterations.
    """
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        if number and number % every == 0 and wait_ns:
            with program.range("core.py(1100): run_busy_loop", "frame"):
                program.host(2_000, "")
                program.host(wait_ns, "queue.py(154): get", "frame")
        plan_ns = 60_000 + time_ns(faults, "plan", program.rank, number)
        program.host(plan_ns, "scheduler.py(180): schedule", "frame")
        with program.range("execute_context_0(0)_generation_24(24)") if is_marked else nullcontext():
            program.host(60_000, "gpu_model_runner.py(900): _prepare_inputs", "frame")
            graph_with(program, [("decode_mlp", 60_000), ("paged_attention", 50_000)] * 8, world, 9_000)
            program.copy("DtoH", 96, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaEventSynchronize")

    job = job_of(ranks, iterations, step, (world,), faults, has_steps=False, ends_synced=False)
    return noisy(job, noise or Noise(), faults)
