"""Jobs that are met rarely: slow in backward alone, a network card of two groups, stalls at random, background copies."""

import random

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, optimizer

_SHAPES = "[[4096, 768], [768, 768]]"


def slow_backward(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 8) -> Job:
    """Data parallel; the fault `backward` makes the same backward kernels take longer, forward as before."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        longer_ns = time_ns(faults, "backward", program.rank, number) // layers
        for _ in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 15_000, _SHAPES)
        reduced = -1
        for _ in range(layers):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000 + longer_ns, 15_000, _SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def network_cards(nodes: int = 4, gpus: int = 2, steps: int = 5, faults: Faults = ()) -> Job:
    """Nodes in pairs: each GPU exchanges with its like of the other node, then all reduce; `link` slows the exchange."""
    world = Group("world", tuple(range(nodes * gpus)))
    pairs = [
        Group(f"pair{pair}gpu{gpu}", (2 * pair * gpus + gpu, (2 * pair + 1) * gpus + gpu), "pair")
        for pair in range(nodes // 2)
        for gpu in range(gpus)
    ]
    own = {rank: group for group in pairs for rank in group.ranks}

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        slow_ns = time_ns(faults, "link", program.rank, number) // 6
        last = -1
        for _ in range(6):
            sent = program.collective("all_gather", own[program.rank], 8_000_000, 80_000 + slow_ns)
            with program.range("aten::linear", "operator", _SHAPES):
                program.host(10_000)
                last = program.kernel("gemm", 400_000, after=(sent,))
        reduced = program.collective("all_reduce", world, 8_000_000, 200_000, stream=COMM_STREAM + 1, after=(last,))
        optimizer(program, (reduced,))

    return job_of(nodes * gpus, steps, step, (world, *pairs), faults)


def uneven_microbatches(ranks: int = 4, steps: int = 6, faults: Faults = (), *, micro: int = 3, seed: int = 5) -> Job:
    """Accumulates gradients of microbatches of random lengths, another one on each rank."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)
    length = {(rank, step, part): chance.uniform(0.5, 1.5) for rank in range(ranks) for step in range(steps)
              for part in range(micro)}  # fmt: skip

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for part in range(micro):
            times = length[program.rank, number, part]
            shapes = f"[[{round(4096 * times)}, 768], [768, 768]]"
            for layer in range(6):
                made = layer_of(program, "aten::linear", "gemm", round(350_000 * times), 15_000, shapes)
                if part == micro - 1 and layer >= 3:
                    reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def stalling_hosts(
    ranks: int = 4, steps: int = 8, faults: Faults = (), *, stall_ns: int = 900_000, seed: int = 2
) -> Job:
    """Every host stalls in one layer of ten, another one each time; the GPUs have work queued before them."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(12):
            stalls = chance.random() < 0.1
            made = layer_of(program, "aten::linear", "gemm", 500_000, 15_000 + stalls * stall_ns, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def saving_beside(ranks: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Rank 0 copies its parameters to the host on a stream of its own while it computes: nobody waits for that."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        if program.rank == 0:
            program.copy("DtoH", 256 << 20, 3_000_000)
        for layer in range(10):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 15_000, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def short_batches(ranks: int = 4, steps: int = 5, faults: Faults = (), *, short: int = 3) -> Job:
    """One rank's batches are half as long as everybody else's: it waits, and nobody waits for any one rank."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        times = 0.5 if program.rank == short else 1.0
        shapes = f"[[{round(4096 * times)}, 768], [768, 768]]"
        for _ in range(10):
            made = layer_of(program, "aten::linear", "gemm", round(500_000 * times), 15_000, shapes)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def meeting_hosts(
    ranks: int = 4, steps: int = 6, faults: Faults = (), *, name: str = "barrier", groups: int = 1, handed: int = 0
) -> Job:
    """Hosts that meet in a collective of the CPU, all or some of them, before they launch each step."""
    world = Group("0", tuple(range(ranks)))
    each = ranks // groups
    of_cpu = [Group(f"gloo{one}", tuple(range(one * each, (one + 1) * each)), "gloo") for one in range(groups)]

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        strike(program, faults, number)
        program.meet(of_cpu[program.rank // each], name, handed=handed)
        for _ in range(8):
            made = layer_of(program, "aten::linear", "gemm", 250_000, 30_000, _SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 100_000, after=(made,))
        optimizer(program, (reduced,))
        program.sync("cudaStreamSynchronize")

    return job_of(ranks, steps, step, (world, *of_cpu), faults)
