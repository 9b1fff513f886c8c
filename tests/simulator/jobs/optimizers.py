"""Jobs told apart by their optimizers: in shards, on one rank, on the CPU, of matrices, in a loop."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import Group, Job, Program
from tests.simulator.workloads import (
    SHAPES,
    WIDE_SHAPES,
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
