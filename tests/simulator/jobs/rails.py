"""Nodes in a ring: each GPU sends to its like of the next node over its own network card, and receives from the one before."""

from dataclasses import replace

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import after_of, noisy_job, optimizer


def rails(nodes: int = 4, gpus: int = 2, steps: int = 4, faults: Faults = (), *, layers: int = 5, elements: int = 6_000_000,
          is_grouped: bool = False, is_reduced: bool = True, noise: Noise | None = None) -> Job:  # fmt: skip
    """What a layer makes goes on while the next is computed; `card`: what every message of a rank takes more.

    Which of one GPU lies where is not recorded. With `is_grouped` a rank sends and receives in one kernel; without `is_reduced` nothing else is communicated.
    """
    ranks = nodes * gpus
    world = Group("w", tuple(range(ranks)), "world")

    def step(program: Program, number: int) -> None:
        rank = program.rank
        following, before = (rank + gpus) % ranks, (rank - gpus) % ranks

        def message_ns(peer: int) -> int:
            return 150_000 + max(time_ns(faults, "card", each, number) for each in (rank, peer)) // layers

        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(layers):
            made = after_of(program, "aten::linear", "gemm", 500_000, needed)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if is_grouped:
                ns = max(message_ns(following), message_ns(before))
                needed = (program.exchange(world, elements, ns, sends=(following,), receives=(before,), after=(made,)),)
                continue
            program.exchange(world, elements, message_ns(following), sends=(following,), after=(made,))
            needed = (
                program.exchange(world, elements, message_ns(before), receives=(before,), stream=COMM_STREAM + 1),
            )
        if is_reduced:
            needed = (
                program.collective("all_reduce", world, 8_000_000, 200_000, stream=COMM_STREAM + 2, after=needed),
            )
        optimizer(program, needed)

    made = noisy_job(ranks, steps, step, (world,), faults, noise)
    return made if gpus == 1 else replace(made, hosts=tuple(f"node{rank // gpus}" for rank in range(ranks)))


def woven(ranks: int = 8, steps: int = 4, faults: Faults = (), *, layers: int = 5, reach: int = 2,
          noise: Noise | None = None) -> Job:  # fmt: skip
    """Each rank shares what a layer makes with the next ones of a ring, pair by pair; `card`: what a rank's pairs take more.

    Not the pair with the one after it, which it reaches another way.
    """
    pairs = [
        Group(f"{one}-{far}", (one, (one + far) % ranks), "pair") for one in range(ranks) for far in range(1, reach + 1)
    ]
    world = Group("w", tuple(range(ranks)), "world")

    def pair_ns(pair: Group, number: int) -> int:
        one, other = pair.ranks
        more = [time_ns(faults, "card", other, number)]
        more += [time_ns(faults, "card", one, number)] if other != (one + 1) % ranks else []
        return 150_000 + max(more) // layers

    def step(program: Program, number: int) -> None:
        own = [pair for pair in pairs if program.rank in pair.ranks]
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(layers):
            made = after_of(program, "aten::linear", "gemm", 900_000, needed)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            needed = tuple(
                program.collective(
                    "all_gather", pair, 12_000_000, pair_ns(pair, number), stream=COMM_STREAM + 1 + place, after=(made,)
                )
                for place, pair in enumerate(own)
            )
        needed = (program.collective("all_reduce", world, 8_000_000, 200_000, stream=COMM_STREAM, after=needed),)
        optimizer(program, needed)

    return noisy_job(ranks, steps, step, (*pairs, world), faults, noise)
