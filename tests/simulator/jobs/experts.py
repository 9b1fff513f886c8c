"""Mixtures of experts, told apart by how tokens are spread over ranks and by which way they go."""

import random
from dataclasses import replace

import numpy as np

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import SHAPES, WIDE_SHAPES, after_of, job_of, layer_of, noisy_job, optimizer


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


def hot_experts(ranks: int = 4, steps: int = 6, faults: Faults = (), *, layers: int = 4, tokens: int = 3_000) -> Job:
    """Experts of one rank get tokens of the others (`hot`: their kernels' time a step): its exchanges last longer, too."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        calls = 2 * layers
        more = [time_ns(faults, "hot", rank, number) // calls // 100 for rank in range(ranks)]
        hot = [tokens + each - (sum(more) - each) // (ranks - 1) for each in more]
        own = hot[program.rank]
        sent, received = tuple(count // ranks * 768 for count in hot), (own // ranks * 768,) * ranks
        for _ in range(calls):
            made = layer_of(program, "aten::linear", "dense_gemm", 200_000, 12_000, SHAPES)
            came = program.exchange_unevenly(world, sent, received, 20 * own, after=(made,))
            with program.range("aten::_grouped_mm", "operator", f"[[{own}, 768], [8, 768, 3072]]"):
                program.host(12_000)
                made = program.kernel("expert_gemm", 100 * own, after=(came,))
            back = program.exchange_unevenly(world, received, sent, 20 * own, after=(made,))
            program.kernel("combine", 30_000, after=(back,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


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
            made = layer_of(program, "aten::linear", "dense_gemm", 200_000, 15_000, SHAPES)
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


def capped_experts(
    ranks: int = 8, steps: int = 4, faults: Faults = (), *, layers: int = 4, noise: Noise | None = None
) -> Job:
    """Experts with a capacity: exchanges are even; `hot`: a rank's experts are full, the others' are nine tenths of half full."""
    world = Group("0", tuple(range(ranks)), "ep")

    def step(program: Program, number: int) -> None:
        hot_ns = time_ns(faults, "hot", program.rank, number) // (2 * layers)
        tokens = 2_000 + hot_ns // 200
        load(program, faults, number)
        for layer in range(2 * layers):
            made = layer_of(program, "aten::linear", "dense_gemm", 300_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
            sent = program.collective("all_to_all", world, 2_000_000, 90_000, after=(program.launched - 1,))
            with program.range("aten::_grouped_mm", "operator", f"[[{tokens}, 2048], [8, 2048, 8192]]"):
                program.host(14_000)
                made = program.kernel("expert_gemm", 400_000 + hot_ns, after=(sent,))
            back = program.collective("all_to_all", world, 2_000_000, 90_000, after=(made,))
            program.kernel("combine", 40_000, after=(back,))
        optimizer(program, ())

    return noisy_job(ranks, steps, step, (world,), faults, noise)


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


def routed_unevenly(experts: int = 8, data: int = 2, steps: int = 4, faults: Faults = (), *, layers: int = 3, spread: float = 0.1,
                    seed: int = 5, noise: Noise | None = None) -> Job:  # fmt: skip
    """Experts in groups; tokens differ by rank, step and layer; hosts read the split sizes. `hot`: a rank gets so much more."""
    rows = adjacent("ep", experts, data)
    world = Group("w", tuple(range(experts * data)), "dp")

    def loads(row: Group, number: int, layer: int) -> list[int]:
        chance = random.Random(f"{seed} {row.name} {number} {layer}")
        drawn_at = [round(4_000 * (1 + spread * chance.uniform(-1, 1))) for _ in row.ranks]
        return [one + time_ns(faults, "hot", rank, number) // (2 * layers) // 90
                for one, rank in zip(drawn_at, row.ranks, strict=True)]  # fmt: skip

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // experts]
        load(program, faults, number)
        for layer in range(2 * layers):
            tokens = loads(row, number, layer)
            own = tokens[program.rank % experts]
            sent, received = tuple(each // experts * 1024 for each in tokens), (own // experts * 1024,) * experts
            layer_of(program, "aten::linear", "dense_gemm", 350_000, 14_000, WIDE_SHAPES)
            with program.range("aten::item", "operator"):
                program.copy("DtoH", 64, 2_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize")
            if layer == 1:
                strike(program, faults, number)
            came = program.exchange_unevenly(row, sent, received, 60_000 + 8 * own, after=(program.launched - 1,))
            made = after_of(
                program,
                "aten::_grouped_mm",
                "grouped_gemm",
                90 * own,
                (came,),
                14_000,
                f"[[{own}, 1024], [8, 1024, 4096]]",
            )
            back = program.exchange_unevenly(row, received, sent, 60_000 + 8 * own, after=(made,))
            made = after_of(program, "aten::index_add", "combine", 30_000, (back,), 10_000)
        made = program.collective("all_reduce", world, 32_000_000, 600_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (made,))

    return noisy_job(experts * data, steps, step, (*rows, world), faults, noise)


def sent_in_two(nodes: int = 4, gpus: int = 2, steps: int = 4, faults: Faults = (), *, layers: int = 3,
                noise: Noise | None = None) -> Job:  # fmt: skip
    """Tokens go to their node first, over GPU k's rail, then to their expert's GPU within it; `nic`: a rank's rail takes more."""
    rails = strided("rail", nodes, gpus)
    rows = adjacent("node", gpus, nodes)
    world = Group("w", tuple(range(nodes * gpus)), "dp")

    def step(program: Program, number: int) -> None:
        rail, row = rails[program.rank % gpus], rows[program.rank // gpus]
        slow_ns = max(time_ns(faults, "nic", rank, number) for rank in rail.ranks) // (4 * layers)
        load(program, faults, number)
        for layer in range(2 * layers):
            made = layer_of(program, "aten::linear", "dense_gemm", 300_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective("all_to_all", rail, 4_000_000, 130_000 + slow_ns, after=(made,))
            made = program.collective("all_to_all", row, 4_000_000, 50_000, stream=COMM_STREAM + 1, after=(made,))
            made = after_of(program, "aten::_grouped_mm", "grouped_gemm", 350_000, (made,))
            made = program.collective("all_to_all", row, 4_000_000, 50_000, stream=COMM_STREAM + 1, after=(made,))
            made = program.collective("all_to_all", rail, 4_000_000, 130_000 + slow_ns, after=(made,))
            after_of(program, "aten::index_add", "combine", 30_000, (made,))
        made = program.collective("all_reduce", world, 16_000_000, 300_000, stream=COMM_STREAM + 2,
                                  after=(program.launched - 1,))  # fmt: skip
        optimizer(program, (made,))

    job = noisy_job(nodes * gpus, steps, step, (*rails, *rows, world), faults, noise)
    return replace(job, hosts=tuple(f"node{rank // gpus}" for rank in range(nodes * gpus)))
