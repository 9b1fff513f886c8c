"""Data parallel jobs told apart by who exchanges with whom, and when: neighbours, leaders of nodes, a server, now and then."""

from dataclasses import replace

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program, adjacent, strided
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


def joined(ranks: int = 4, steps: int = 7, *, spent: int = 3, runs_out: int = 4) -> Job:
    """Data parallel under `Join`: from a step on one rank has no input, and only takes part in the others' all-reduces.

    Its profiler makes no more steps: the last one that it began holds all that follows.
    """
    world = Group("0", tuple(range(ranks)))
    programs = []
    for rank in range(ranks):
        program = Program(rank)
        own = runs_out if rank == spent else steps
        for number in range(own):
            with program.range(f"ProfilerStep#{number}"):
                _joined_step(program, world, has_input=True)
                program.sync()
        if own < steps:
            with program.range(f"ProfilerStep#{own}"):
                for _ in range(own, steps):
                    _joined_step(program, world, has_input=False)
                    program.sync()
        programs.append(program)
    return Job(tuple(programs), (world,), jitter=0.004, end_jitter_ns=2_000)


def _joined_step(program: Program, world: Group, *, has_input: bool) -> None:
    if has_input:
        load(program, (), 0)
    program.host(20_000, "join_hook")
    program.collective("all_reduce", world, 1, 12_000)
    made = -1
    for _ in range(8 if has_input else 0):
        made = layer_of(program, "aten::linear", "forward_gemm", 250_000, 15_000, SHAPES)
    reduced = -1
    for _ in range(8):
        if has_input:
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 500_000, 15_000, SHAPES)
        else:
            program.host(10_000, "main_hook")
        reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,) if has_input else ())
    if has_input:
        optimizer(program, (reduced,))


def broadcasts(ranks: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Rank 0 sends every step's inputs to the others; then they reduce gradients."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        strike(program, faults, number)
        sent = program.collective("broadcast", world, 4_000_000, 80_000, after=(program.launched - 1,))
        reduced = -1
        for _ in range(6):
            with program.range("aten::linear", "operator"):
                program.host(15_000)
                made = program.kernel("gemm", 500_000, after=(sent,))
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def led(nodes: int = 4, gpus: int = 4, steps: int = 4, faults: Faults = (), *, buckets: int = 5,
        noise: Noise | None = None) -> Job:  # fmt: skip
    """Gradients in three moves: reduced within a node, by its first GPU with those of other nodes, sent back within it.

    `wire`: what the moves between nodes take more.
    """
    rows = adjacent("n", gpus, nodes, "node")
    backs = [Group(f"b{n}", row.ranks, "node") for n, row in enumerate(rows)]
    leaders = Group("leaders", tuple(range(0, nodes * gpus, gpus)), "leaders")

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // gpus]
        slow_ns = time_ns(faults, "wire", program.rank, number) // buckets
        load(program, faults, number)
        for layer in range(2 * buckets):
            layer_of(program, "aten::linear", "forward_gemm", 240_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(buckets):
            layer_of(program, "aten::linear_backward", "backward_gemm", 450_000, 14_000, WIDE_BACK_SHAPES)
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 450_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", row, 8_000_000, 90_000, after=(made,))
            if program.rank in leaders.ranks:
                made = program.collective(
                    "all_reduce", leaders, 8_000_000, 260_000 + slow_ns, stream=COMM_STREAM + 1, after=(made,)
                )
            made = program.collective(
                "broadcast", backs[program.rank // gpus], 8_000_000, 80_000, stream=COMM_STREAM + 2, after=(made,)
            )
        optimizer(program, (made,))

    job = noisy_job(nodes * gpus, steps, step, (*rows, *backs, leaders), faults, noise)
    return replace(job, hosts=tuple(f"node{rank // gpus}" for rank in range(nodes * gpus)))


def summed_over_nodes(
    gpus: int = 4, nodes: int = 2, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None
) -> Job:
    """Sharded within nodes; each GPU reduces with those of its place on all nodes: a slow card (`nic`) slows all of them."""
    rows = adjacent("s", gpus, nodes, "shard")
    columns = strided("r", nodes, gpus, "replicate")

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // gpus], columns[program.rank % gpus]
        slow_ns = time_ns(faults, "nic", program.rank, number) // 6
        load(program, faults, number)
        for layer in range(12):
            gathered = program.collective("all_gather", row, 8_000_000, 70_000)
            made = after_of(program, "aten::linear", "gemm", 350_000, (gathered,))
            if layer == 1:
                strike(program, faults, number)
            if layer >= 6:
                made = program.collective(
                    "reduce_scatter", row, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,)
                )
                made = program.collective(
                    "all_reduce", column, 4_000_000, 150_000 + slow_ns, stream=COMM_STREAM + 2, after=(made,)
                )
        optimizer(program, (made,))

    return noisy_job(gpus * nodes, steps, step, (*rows, *columns), faults, noise)


def chained(groups: int = 3, each: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Groups that share two ranks with the next one; all their collectives are on one stream of each rank."""
    overlapping = [Group(f"g{n}", tuple(range(n * (each - 2), n * (each - 2) + each))) for n in range(groups)]
    ranks = overlapping[-1].ranks[-1] + 1

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        own = [group for group in overlapping if program.rank in group.ranks]
        reduced: tuple[int, ...] = ()
        for layer in range(8):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 12_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
            reduced = tuple(program.collective("all_reduce", group, 4_000_000, 120_000, after=(made,)) for group in own)
        optimizer(program, reduced)

    return job_of(ranks, steps, step, tuple(overlapping), faults)
