"""Jobs told apart by their optimizers: in shards, on one rank, on the CPU, of matrices, in a loop."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.workloads import (
    SHAPES,
    WIDE_BACK_SHAPES,
    WIDE_SHAPES,
    after_of,
    job_of,
    layer_of,
    noisy_job,
    optimizer,
)


def in_shards(ranks: int = 16, steps: int = 3, faults: Faults = (), *, micro: int = 3, buckets: int = 5, bucket_ns: int = 400_000,
              noise: Noise | None = None) -> Job:  # fmt: skip
    """ZeRO-1: gradients of several micro-steps are reduced in the last one, each rank updates its part, all gather."""
    world = Group("0", tuple(range(ranks)), "data_parallel_group")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for part in range(micro):
            for layer in range(6):
                layer_of(program, "aten::linear", "forward_gemm", 250_000, 14_000, WIDE_SHAPES)
                if layer == 1 and part == 1:
                    strike(program, faults, number)
            for layer in range(6):
                made = layer_of(program, "aten::linear_backward", "backward_gemm", 500_000, 14_000, WIDE_SHAPES)
                if part == micro - 1:
                    for _ in range(buckets // 6 + (layer < buckets % 6)):
                        made = program.collective(
                            "reduce_scatter", world, 100_000_000 // buckets, bucket_ns, after=(made,)
                        )
        optimizer(program, (made,))
        program.collective("all_gather", world, 100_000_000, 1_500_000, after=(program.launched - 1,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def on_the_cpu(
    ranks: int = 4, steps: int = 4, faults: Faults = (), *, adam_ns: int = 12_000_000, noise: Noise | None = None
) -> Job:
    """ZeRO-2 with offload: gradients go to the host as they come, its Adam updates the rank's part (`adam` takes more)."""
    world = Group("0", tuple(range(ranks)), "data_parallel_group")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 300_000, 14_000, WIDE_SHAPES)
        for _ in range(8):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 600_000, 14_000, WIDE_SHAPES)
            made = program.collective("reduce_scatter", world, 16_000_000, 250_000, after=(made,))
            made = program.copy("DtoH", 8 << 20, 180_000, after=(made,))
        program.sync("cudaStreamSynchronize", after=(made,))
        with program.range("Optimizer.step#DeepSpeedCPUAdam.step"):
            program.host(
                adam_ns + time_ns(faults, "adam", program.rank, number), "cpu_adam.py(150): adam_update", "frame"
            )
        made = program.copy("HtoD", 32 << 20, 700_000, stream=COPY_STREAM + 1)
        program.collective("all_gather", world, 64_000_000, 800_000, after=(made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def one_optimizer(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """Gradients are reduced, rank 0 alone runs the optimizer, for `adam`, and sends the parameters to the others."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 12_000, SHAPES)
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
            made = layer_of(program, "aten::linear", "gemm", 500_000, 12_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
            made = program.collective("reduce_scatter", world, 4_000_000, 120_000, after=(made,))
        with program.range("Optimizer.step#AdamW.step"), program.range("aten::_fused_adamw_", "operator"):
            program.host(10_000)
            made = program.kernel("adam", 300_000 + time_ns(faults, "shard", program.rank, number), after=(made,))
        program.collective("all_gather", world, 32_000_000, 300_000, after=(made,))

    return job_of(ranks, steps, step, (world,), faults)


def owned(ranks: int = 4, steps: int = 4, faults: Faults = (), *, each: int = 4, iterations: int = 5, ns: int = 130_000,
          noise: Noise | None = None) -> Job:  # fmt: skip
    """Each rank makes the matrices that it owns orthogonal, by a few products each; then all gather them. `own`: more of them."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(10):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 14_000, WIDE_SHAPES)
        for _ in range(10):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("reduce_scatter", world, 6_000_000, 150_000, after=(made,))
        many = each + time_ns(faults, "own", program.rank, number) // (iterations * ns)
        with program.range("Optimizer.step#Muon.step"):
            for place in range(many):
                for _ in range(iterations):
                    made = after_of(program, "aten::addmm", "newton_schulz_gemm", ns, (made,) if not place else (),
                                    9_000, "[[2048, 2048], [2048, 2048], [2048, 2048]]")  # fmt: skip
        strike(program, faults, number)
        program.collective("all_gather", world, 60_000_000, 900_000, after=(program.launched - 1,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def preconditioned(ranks: int = 8, steps: int = 7, faults: Faults = (), *, every: int = 3, eigh_ns: int = 9_000_000,
                   noise: Noise | None = None) -> Job:  # fmt: skip
    """Every so many steps each rank finds the roots of its own blocks, and all gather them; `eigh`: a rank's are larger."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 220_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(8):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 440_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 8_000_000, 180_000, after=(made,))
        if number % every == 1:
            ns = eigh_ns + time_ns(faults, "eigh", program.rank, number)
            with program.range("Optimizer.step#Shampoo.step"):
                for _ in range(12):
                    made = after_of(program, "aten::linalg_eigh", "syevd_kernel", ns // 12, (made,), 20_000,
                                    f"[[{2048 * ns // eigh_ns}, {2048 * ns // eigh_ns}]]")  # fmt: skip
                made = program.collective("all_gather", world, 40_000_000, 600_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def averaged(ranks: int = 8, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """`ema`: a rank also keeps an average of the weights, tensor by tensor, after the optimizer."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(12):
            gathered = program.collective("all_gather", world, 8_000_000, 80_000)
            with program.range("aten::linear", "operator", WIDE_SHAPES):
                program.host(14_000)
                made = program.kernel("gemm", 500_000, after=(gathered,))
            if layer == 1:
                strike(program, faults, number)
            if layer >= 6:
                made = program.collective(
                    "reduce_scatter", world, 8_000_000, 90_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))
        ema_ns = time_ns(faults, "ema", program.rank, number)
        for _ in range(30 if ema_ns else 0):
            layer_of(program, "aten::lerp_", "vectorized_lerp", ema_ns // 30, 10_000, "[[2048, 2048], [2048, 2048]]")

    return noisy_job(ranks, steps, step, (world,), faults, noise)


_OF_ADAM = tuple((name, f"elementwise_{name}") for name in ("mul_", "lerp_", "addcdiv_"))

_ONE_BY_ONE = "void at::native::vectorized_elementwise_kernel<4, at::native::"

_OF_SGD = (
    ("mul_", f"{_ONE_BY_ONE}AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >"),
    *(("add_", f"{_ONE_BY_ONE}CUDAFunctor_add<float> >"),) * 2,
)
"""Momentum, the gradient, the parameter: operations that anything else does, too."""


def looped_optimizer(ranks: int = 4, steps: int = 4, faults: Faults = (), *, parameters: int = 300,
                     is_sgd: bool = False) -> Job:  # fmt: skip
    """Every rank's optimizer is a loop of small operations over its parameters: AdamW, or SGD with momentum."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for _ in range(8):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 15_000, SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        with program.range(f"Optimizer.step#{'SGD' if is_sgd else 'AdamW'}.step"):
            for place in range(parameters):
                for name, kernel in _OF_SGD if is_sgd else _OF_ADAM:
                    with program.range(f"aten::{name}", "operator"):
                        program.host(9_000)
                        program.kernel(kernel, 2_500, after=(reduced,) if not place else ())

    return job_of(ranks, steps, step, (world,), faults)
