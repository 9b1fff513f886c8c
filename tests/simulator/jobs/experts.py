"""Mixtures of experts, told apart by how tokens are spread over ranks and by which way they go."""

import numpy as np

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, strided
from tests.simulator.workloads import SHAPES, WIDE_SHAPES, job_of, layer_of, noisy_job, optimizer


def hot_expert(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 4, has_shapes: bool = True) -> Job:
    """Mixture of experts: the rank with the fault `compute` holds the expert to which most tokens go, in every layer.

    Without shapes one kernel of a fixed grid computes as many tokens as it is given.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        more_ns = time_ns(faults, "compute", program.rank, number) // (2 * layers)
        for _ in range(2 * layers):
            before = layer_of(program, "aten::linear", "dense_gemm", 200_000, 15_000, SHAPES)
            sent = program.collective("all_to_all", world, 1_000_000, 60_000, after=(before,))
            tokens = 4096 + more_ns // 100
            shapes = f"[[{tokens}, 768], [768, 3072]]" if has_shapes else ""
            with program.range("aten::_grouped_mm" if has_shapes else "moe::run", "operator", shapes):
                program.host(15_000)
                name = "expert_gemm" if has_shapes else "batched_persistent"
                done = program.kernel(name, 300_000 + more_ns, after=(sent,))
            back = program.collective("all_to_all", world, 1_000_000, 60_000, after=(done,))
            program.kernel("combine", 30_000, after=(back,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), tuple(fault for fault in faults if fault.what != "compute"))


def uneven_experts(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 4, spread: float = 0.12,
            seed: int = 9) -> Job:  # fmt: skip
    """Experts whose loads differ a little in each step and layer; one rank's is `hot`, always."""
    world = Group("0", tuple(range(ranks)))
    loads = np.random.default_rng(seed).normal(1, spread, (steps, 2 * layers, ranks))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(2 * layers):
            made = layer_of(program, "aten::linear", "dense_gemm", 250_000, 12_000, SHAPES)
            came = program.collective("all_to_all", world, 2_000_000, 60_000, after=(made,))
            hot_ns = time_ns(faults, "hot", program.rank, number) // (2 * layers)
            with program.range("aten::_grouped_mm", "operator", SHAPES):
                program.host(12_000)
                made = program.kernel("expert_gemm", round(300_000 * loads[number, layer, program.rank]) + hot_ns,
                                      after=(came,))  # fmt: skip
            back = program.collective("all_to_all", world, 2_000_000, 60_000, after=(made,))
            program.kernel("combine", 30_000, after=(back,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def rails(
    nodes: int = 4, gpus: int = 2, steps: int = 4, faults: Faults = (), *, layers: int = 3, noise: Noise | None = None
) -> Job:
    """Experts over GPU k of every node, on a rail of the network; gradients over all; `link` is a rail's exchanges."""
    rows = strided("ep", nodes, gpus)
    world = Group("w", tuple(range(nodes * gpus)), "dp")

    def step(program: Program, number: int) -> None:
        row = rows[program.rank % gpus]
        slow_ns = time_ns(faults, "link", program.rank, number) // (4 * layers)
        load(program, faults, number)
        for _ in range(2 * layers):
            made = layer_of(program, "aten::linear", "dense_gemm", 300_000, 14_000, WIDE_SHAPES)
            sent = program.collective("all_to_all", row, 4_000_000, 160_000 + slow_ns, after=(made,))
            with program.range("aten::_grouped_mm", "operator", WIDE_SHAPES):
                program.host(14_000)
                made = program.kernel("expert_gemm", 350_000, after=(sent,))
            back = program.collective("all_to_all", row, 4_000_000, 160_000 + slow_ns, after=(made,))
            program.kernel("combine", 40_000, after=(back,))
        made = program.collective("all_reduce", world, 16_000_000, 300_000, stream=COMM_STREAM + 1,
                                  after=(program.launched - 1,))  # fmt: skip
        optimizer(program, (made,))

    return noisy_job(nodes * gpus, steps, step, (*rows, world), faults, noise)


def routed(ranks: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 6, noise: Noise | None = None) -> Job:
    """Experts whose split sizes the hosts read before each exchange."""
    world = Group("0", tuple(range(ranks)), "ep")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(2 * layers):
            layer_of(program, "aten::linear", "dense_gemm", 180_000, 25_000, WIDE_SHAPES)
            layer_of(program, "aten::topk", "topk_kernel", 15_000, 25_000, WIDE_SHAPES)
            with program.range("aten::_local_scalar_dense", "operator"):
                program.copy("DtoH", 256, 3_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize")
            program.host(60_000, "moe.py(77): splits_of", "frame")
            if layer == 1:
                strike(program, faults, number)
            sent = program.collective("all_to_all", world, 2_000_000, 70_000, after=(program.launched - 1,))
            with program.range("aten::_grouped_mm", "operator", WIDE_SHAPES):
                program.host(25_000)
                made = program.kernel("expert_gemm", 250_000, after=(sent,))
            back = program.collective("all_to_all", world, 2_000_000, 70_000, after=(made,))
            program.kernel("combine", 20_000, after=(back,))
        optimizer(program, ())

    return noisy_job(ranks, steps, step, (world,), faults, noise)
