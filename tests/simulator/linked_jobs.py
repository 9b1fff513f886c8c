"""Replicated pipelines whose stages exchange gradients in one call, in buckets or sharded: links that can be slow."""

from collections.abc import Sequence
from dataclasses import replace

from tests.simulator.cube_jobs import cube
from tests.simulator.faults import Faults, load, strike
from tests.simulator.grid_jobs import slowed
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, microbatch, one_forward_one_backward, optimizer

_IN_A_MS = 100_000_000
"""Elements of two bytes that links move in a millisecond: 200 GB/s."""


def staged(stages: int = 4, data: int = 2, steps: int = 5, faults: Faults = (), *, microbatches: int = 6, chunks: int = 1,
           elements: Sequence[int] = (), buckets: int = 1, is_sharded: bool = False, slow: str = "all_reduce",
           hosts: tuple[str, ...] = (), across: float = 1.0) -> Job:  # fmt: skip
    """1F1B with so many replicas; rank stage + stages · replica.

    Gradients are reduced after the last backward, in so many `buckets`, or (`is_sharded`) parameters are gathered before
    the first microbatch and gradients scattered after the last one. `elements` of each stage's gradients; transfers of
    groups on several `hosts` take `across` times as long. `link` makes the calls of `slow` longer.
    """
    lines = [Group(f"pp{n}", tuple(range(n * stages, (n + 1) * stages)), "pp") for n in range(data)]
    columns = [Group(f"dp{n}", tuple(range(n, stages * data, stages)), "dp") for n in range(stages)]

    def step(program: Program, number: int) -> None:
        line, stage = divmod(program.rank, stages)
        column, own = columns[stage], (elements or [40_000_000] * stages)[stage] // buckets
        is_across = len({hosts[rank] for rank in column.ranks}) > 1 if hosts else False
        ns = round(own / _IN_A_MS * 1_000_000 * (across if is_across else 1.0))
        load(program, faults, number)
        if is_sharded:
            for _ in range(buckets):
                program.collective("all_gather", column, own, ns, stream=COMM_STREAM + 8)
            program.kernel("unshard", 10_000, after=(program.launched - 1,))
        for place, (is_forward, chunk) in enumerate(one_forward_one_backward(stage, stages, microbatches, chunks)):
            microbatch(program, lines[line], chunk * stages + stage, stages * chunks, 500_000 // chunks,
                       is_forward=is_forward)  # fmt: skip
            if place == 1:
                strike(program, faults, number)
        last = program.launched - (2 if stage else 1)
        for _ in range(buckets):
            name = "reduce_scatter" if is_sharded else "all_reduce"
            last = program.collective(name, column, own, ns, stream=COMM_STREAM + 8, after=(last,))
        optimizer(program, (last,))

    job = job_of(stages * data, steps, step, (*lines, *columns), faults)
    return replace(slowed(job, "dp", slow, faults), hosts=hosts)


def cubed(of: str = "tp", steps: int = 5, faults: Faults = ()) -> Job:
    """Tensor, pipeline and data parallel; all-reduces of the `of` groups can be slow."""
    return slowed(cube(2, 2, 2, steps, faults), of, "all_reduce", faults)
