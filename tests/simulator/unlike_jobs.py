"""Jobs whose ranks do unlike things: embeddings in parts, one optimizer for all, stages of unlike work, other GPUs."""

import random
from dataclasses import replace

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, optimizer

_SHAPES = "[[4096, 768], [768, 768]]"


def recommending(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """Embedding tables in model parallel, exchanged; towers in data parallel; `tables`: lookups that take longer."""
    world, towers = Group("0", tuple(range(ranks))), Group("1", tuple(range(ranks)), "towers")

    def step(program: Program, number: int) -> None:
        more_ns = time_ns(faults, "tables", program.rank, number) // 3
        load(program, faults, number)
        for phase, part in (("", 1), ("_dense_backward", 2)):
            with program.range(f"aten::_embedding_bag{phase}", "operator", "[[4000000, 128], [65536]]"):
                program.host(15_000)
                made = program.kernel(f"embedding_bag{phase}", (400_000 + more_ns) * part)
            if not phase:
                made = program.collective("all_to_all", world, 2_000_000, 200_000, after=(made,))
                for layer in range(5):
                    made = layer_of(program, "aten::linear", "tower_gemm", 300_000, 15_000, _SHAPES)
                    if layer == 1:
                        strike(program, faults, number)
                reduced = program.collective(
                    "all_reduce", towers, 2_000_000, 200_000, stream=COMM_STREAM + 1, after=(made,)
                )
                program.kernel(
                    "wait", 1_000, after=(program.collective("all_to_all", world, 2_000_000, 200_000, after=(made,)),)
                )
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world, towers), faults)


def one_optimizer(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """Gradients are reduced, rank 0 alone runs the optimizer, for `adam`, and sends the parameters to the others."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 12_000, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
            made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        adam_ns = time_ns(faults, "adam", program.rank, number)
        if adam_ns:
            with program.range("Optimizer.step#AdamW.step"), program.range("aten::_fused_adamw_", "operator"):
                program.host(10_000)
                made = program.kernel("adam", adam_ns, after=(made,))
        program.collective("broadcast", world, 32_000_000, 300_000, after=(made,))

    return job_of(ranks, steps, step, (world,), faults)


def sharded_optimizer(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """ZeRO-1 with shards of unlike sizes: `shard` is what a rank's optimizer takes longer; then all gather."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 12_000, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
            made = program.collective("reduce_scatter", world, 4_000_000, 120_000, after=(made,))
        with program.range("Optimizer.step#AdamW.step"), program.range("aten::_fused_adamw_", "operator"):
            program.host(10_000)
            made = program.kernel("adam", 300_000 + time_ns(faults, "shard", program.rank, number), after=(made,))
        program.collective("all_gather", world, 32_000_000, 300_000, after=(made,))

    return job_of(ranks, steps, step, (world,), faults)


def frozen(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """Low-rank adapters: almost all is forward, the gradients are small."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        with program.range("forward"):
            for layer in range(16):
                layer_of(program, "aten::linear", "gemm", 400_000, 12_000, _SHAPES)
                layer_of(program, "aten::mm", "adapter_gemm", 15_000, 8_000, "[[4096, 768], [768, 8]]")
                if layer == 1:
                    strike(program, faults, number)
        with program.range("backward"):
            for _ in range(4):
                made = layer_of(program, "aten::mm", "adapter_backward", 60_000, 8_000, "[[768, 4096], [4096, 8]]")
            made = program.collective("all_reduce", world, 50_000, 25_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def with_barrier(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """A barrier before each step's forward pass, after the batch is loaded."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        made = program.collective("all_reduce", world, 1, 15_000, stream=COMPUTE_STREAM)
        program.sync("cudaStreamSynchronize", after=(made,))
        for layer in range(8):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 12_000, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
            made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def accumulated_in_turn(ranks: int = 4, steps: int = 5, faults: Faults = (), *, extra_ns: int = 2_000_000,
                        is_synced: bool = True) -> Job:  # fmt: skip
    """In microbatch k rank k computes longer; the next one waits for each one's exchange, or the last alone has one."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        made = 0
        for micro in range(ranks):
            with program.range(f"micro_{micro}"):
                for layer in range(4):
                    with program.range("aten::linear", "operator", _SHAPES):
                        program.host(12_000)
                        made = program.kernel("gemm", 400_000, after=(made,) if micro else ())
                    if layer == 1 and micro == program.rank:
                        made = layer_of(
                            program, "aten::mm", "extra_gemm", extra_ns, 5_000, "[[8192, 8192], [8192, 8192]]"
                        )
                if is_synced or micro == ranks - 1:
                    made = program.collective("all_reduce", world, 4_000_000, 200_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def shifting_experts(ranks: int = 4, steps: int = 6, faults: Faults = (), *, layers: int = 3, seed: int = 4) -> Job:
    """Experts whose loads are drawn anew in each step and layer."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)
    loads = {
        (r, s, layer): chance.randint(1_000, 8_000)
        for r in range(ranks)
        for s in range(steps)
        for layer in range(2 * layers)
    }

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(2 * layers):
            made = layer_of(program, "aten::linear", "dense_gemm", 200_000, 15_000, _SHAPES)
            sent = program.collective("all_to_all", world, 1_000_000, 60_000, after=(made,))
            tokens = loads[program.rank, number, layer]
            with program.range("aten::_grouped_mm", "operator", f"[[{tokens}, 768], [768, 3072]]"):
                program.host(15_000)
                made = program.kernel("expert_gemm", 100 * tokens, after=(sent,))
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            back = program.collective("all_to_all", world, 1_000_000, 60_000, after=(made,))
            program.kernel("combine", 30_000, after=(back,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def other_gpu(ranks: int = 4, steps: int = 5, faults: Faults = (), *, other: int = 2, times: float = 1.8) -> Job:
    """One rank's GPU is an older model: other kernels, which take longer."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        is_other = program.rank == other and bool(faults)
        name = "ampere_bf16_s16816gemm" if is_other else "sm90_xmma_gemm_bf16bf16"
        load(program, (), number)
        for _ in range(16):
            made = layer_of(program, "aten::linear", name, round(400_000 * (times if is_other else 1)), 12_000, _SHAPES)
            made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (made,))

    names = tuple("NVIDIA A100-SXM4-80GB" if rank == other else "NVIDIA H200" for rank in range(ranks))
    return replace(job_of(ranks, steps, step, (world,), ()), gpus=names if faults else ())


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
            made = layer_of(program, "aten::linear", "gemm", 120_000, 12_000 + lost_ns // kernels, _SHAPES)
        made = program.collective("all_reduce", world, 8_000_000, 300_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), ())


def compiling(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """Compiled regions; `compile` is a host's recompilation in a step, under Dynamo's ranges."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        ns = time_ns(faults, "compile", program.rank, number)
        with program.range("Torch-Compiled Region: 0/0", "operator"):
            if ns:
                with program.range("_compile.compile_inner (dynamo_timed)"):
                    program.host(ns, "torch/_dynamo/convert_frame.py(700): _compile_inner", "frame")
            for layer in range(8):
                made = layer_of(program, "triton_poi_fused_gelu_0", "triton_poi_fused_gelu_0", 500_000, 12_000, "")
                if layer == 1:
                    strike(program, faults, number)
                made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)
