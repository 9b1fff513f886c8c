"""Jobs of which a GPU is slower, another model, shared, watched, or runs other kernels."""

from dataclasses import replace

from tests.simulator.faults import Faults, factor, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import (
    SHAPES,
    WIDE_BACK_SHAPES,
    WIDE_SHAPES,
    job_of,
    layer_of,
    noisy_job,
    optimizer,
)


def heated(tensor: int = 2, data: int = 4, steps: int = 8, faults: Faults = (), *, by_step: float = 0.08) -> Job:
    """Tensor x data parallel; a GPU with the fault `heat` takes longer for its kernels from step to step, from the third on."""
    rows = adjacent("tp", tensor, data)
    columns = strided("dp", data, tensor)

    def step(program: Program, number: int) -> None:
        is_hot = hit(faults, "heat", program.rank, number)
        times = 1 + is_hot * by_step * max(0, number - 1)
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(8):
            with program.range("aten::mm", "operator", SHAPES):
                program.host(15_000)
                name = "forward_gemm" if layer < 4 else "backward_gemm"
                made = program.kernel(name, round(500_000 * times), after=needed)
            needed = (program.collective("all_reduce", rows[program.rank // tensor], 2_000_000, 40_000, after=(made,)),)
        reduced = program.collective("all_reduce", columns[program.rank % tensor], 16_000_000, 250_000,
                                     stream=COMM_STREAM + 1, after=needed)  # fmt: skip
        optimizer(program, (reduced,))

    return job_of(tensor * data, steps, step, (*rows, *columns), faults)


def slow_memory(ranks: int = 8, steps: int = 5, faults: Faults = ()) -> Job:
    """Data parallel; the fault `memory` makes kernels longer that only move bytes, products are as fast as everybody's."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        times = factor(faults, "memory", program.rank, number)
        load(program, faults, number)
        reduced = -1
        for _ in range(10):
            layer_of(program, "aten::linear", "nvjet_tst_128x256_64x4", 300_000, 10_000, SHAPES)
            layer_of(program, "aten::native_layer_norm", "vectorized_layer_norm_kernel", round(60_000 * times), 8_000)
            made = layer_of(program, "aten::gelu", "vectorized_elementwise_kernel", round(120_000 * times), 8_000)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def other_library(ranks: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Sharded; a rank with the fault `library` runs other kernels for the same products, its GPU is the others'."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        times = factor(faults, "library", program.rank, number)
        name = "nvjet_tst_128x256_64x4" if times == 1 else "cutlass_80_tensorop_bf16_s16816gemm_128x128"
        load(program, faults, number)
        for _ in range(10):
            gathered = program.collective("all_gather", world, 8_000_000, 60_000)
            with program.range("aten::linear", "operator", SHAPES):
                program.host(15_000)
                program.kernel(name, round(600_000 * times), after=(gathered,))
            made = layer_of(program, "aten::gelu", "gelu", 90_000, 10_000)
            last = program.collective("reduce_scatter", world, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults)


def other_gpu(ranks: int = 4, steps: int = 5, faults: Faults = (), *, other: int = 2, times: float = 1.8) -> Job:
    """One rank's GPU is an older model: other kernels, which take longer."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        is_other = program.rank == other and bool(faults)
        name = "ampere_bf16_s16816gemm" if is_other else "sm90_xmma_gemm_bf16bf16"
        load(program, (), number)
        for _ in range(16):
            made = layer_of(program, "aten::linear", name, round(400_000 * (times if is_other else 1)), 12_000, SHAPES)
            made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (made,))

    names = tuple("NVIDIA A100-SXM4-80GB" if rank == other else "NVIDIA H200" for rank in range(ranks))
    return replace(job_of(ranks, steps, step, (world,), ()), gpus=names if faults else ())


def two_kinds(
    ranks: int = 8, steps: int = 4, faults: Faults = (), *, times: float = 1.7, noise: Noise | None = None
) -> Job:
    """Half of the GPUs are older, `times` as slow; their batches are smaller in proportion, where not the fault `alike` is."""
    world = Group("0", tuple(range(ranks)), "dp")
    gpus = tuple("NVIDIA H200" if rank < ranks // 2 else "NVIDIA A100-SXM4-80GB" for rank in range(ranks))

    def step(program: Program, number: int) -> None:
        is_older = program.rank >= ranks // 2
        samples = round(32 / times) if is_older and not hit(faults, "alike", program.rank, number) else 32
        name, ns = ("ampere_bf16_gemm", 8_000 * times) if is_older else ("nvjet_hsh_gemm", 8_000)
        load(program, faults, number)
        for layer in range(10):
            layer_of(
                program, "aten::linear", name, round(ns * samples), 14_000, f"[[{samples * 128}, 2048], [2048, 2048]]"
            )
            if layer == 1:
                strike(program, faults, number)
        for _ in range(10):
            made = layer_of(program, "aten::linear_backward", f"{name}_backward", round(2 * ns * samples), 14_000,
                            f"[[{samples * 128}, 2048], [{samples * 128}, 2048]]")  # fmt: skip
            made = program.collective("all_reduce", world, 8_000_000, 180_000, after=(made,))
        optimizer(program, (made,))

    return replace(noisy_job(ranks, steps, step, (world,), faults, noise), gpus=gpus)


def slow_backward(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 8) -> Job:
    """Data parallel; the fault `backward` makes the same backward kernels take longer, forward as before."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        longer_ns = time_ns(faults, "backward", program.rank, number) // layers
        for _ in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 15_000, SHAPES)
        reduced = -1
        for _ in range(layers):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000 + longer_ns, 15_000, SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def watched(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 10, noise: Noise | None = None
) -> Job:
    """Data parallel, as people debug it on one rank.

    `blocking`: each launch waits for its kernel; `anomaly`: each gradient is searched for what is no number; `drawn`: the
    gradients' histograms are made and read; `tune`: kernels are tried out, for so long.
    """
    world = Group("0", tuple(range(ranks)), "dp")

    def kernel(program: Program, operator: str, name: str, ns: int, number: int, shapes: str) -> int:
        made = layer_of(program, operator, name, ns, 14_000, shapes)
        if hit(faults, "blocking", program.rank, number):
            program.sync("cudaStreamSynchronize", after=(made,))
        return made

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            for _ in range(3):
                kernel(program, "aten::linear", "forward_gemm", 70_000, number, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
                _tried(program, time_ns(faults, "tune", program.rank, number))
        for _ in range(layers):
            for _ in range(3):
                made = kernel(program, "aten::linear_backward", "backward_gemm", 140_000, number, WIDE_BACK_SHAPES)
                searched_ns = time_ns(faults, "anomaly", program.rank, number) // (3 * layers)
                if searched_ns:
                    layer_of(program, "aten::isnan", "isnan_kernel", searched_ns, 9_000, "[[2048, 2048]]")
            made = program.collective("all_reduce", world, 8_000_000, 170_000, after=(made,))
        _drawn(program, time_ns(faults, "drawn", program.rank, number))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def _drawn(program: Program, ns: int) -> None:
    with program.range("log_histograms"):
        for _ in range(8 if ns else 0):
            layer_of(program, "aten::histc", "kernelHistogram1D", ns // 8, 9_000, "[[8000000]]")


def _tried(program: Program, ns: int) -> None:
    with program.range("triton_autotuner.py(600): benchmark_all_configs", "frame"):
        for place in range(40 if ns else 0):
            layer_of(program, "triton_candidate", f"triton_mm_{place % 8}", ns // 40, 12_000)


def shared(ranks: int = 4, steps: int = 5, faults: Faults = (), *, every_ns: int = 4_600_000) -> Job:
    """Data parallel, of which another process has a GPU at times, every `every_ns`: the fault `slices`."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(12):
            for name, ns in (
                ("norm", 60_000),
                (f"gemm_{layer % 3}", 250_000),
                ("gelu", 90_000),
                ("attention", 180_000),
            ):
                made = layer_of(program, f"aten::{name}", name, ns, 15_000)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    slices = {rank: (every_ns, ns) for rank in range(ranks) if (ns := time_ns(faults, "slices", rank, 0))}
    return replace(job_of(ranks, steps, step, (world,), faults), slices=slices)
