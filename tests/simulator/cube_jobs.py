"""Tensor, pipeline and data parallel at once: three kinds of groups, in each of which one late rank holds up others."""

from tests.simulator.faults import Faults, load, strike
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, one_forward_one_backward, optimizer

_SHAPES = "[[4096, 768], [768, 768]]"


def cube(tensor: int = 2, stages: int = 2, data: int = 2, steps: int = 4, faults: Faults = (), *,
         microbatches: int = 4) -> Job:  # fmt: skip
    """1F1B of two tensor-parallel layers a stage; rank t + tensor · (stage + stages · d)."""
    lines, rows, across = {}, {}, {}
    places = [(t, s, d) for d in range(data) for s in range(stages) for t in range(tensor)]
    rank = {place: number for number, place in enumerate(places)}
    for t, s, d in places:
        rows[s, d] = Group(f"tp{s}.{d}", tuple(rank[i, s, d] for i in range(tensor)), "tp")
        lines[t, d] = Group(f"pp{t}.{d}", tuple(rank[t, i, d] for i in range(stages)), "pp")
        across[t, s] = Group(f"dp{t}.{s}", tuple(rank[t, s, i] for i in range(data)), "dp")

    def step(program: Program, number: int) -> None:
        t, s, d = places[program.rank]
        load(program, faults, number)
        for place, (is_forward, _) in enumerate(one_forward_one_backward(s, stages, microbatches, 1)):
            source, target = (s - 1, s + 1) if is_forward else (s + 1, s - 1)
            stream, line = COMM_STREAM + (0 if is_forward else 2), lines[t, d].ranks
            needed: tuple[int, ...] = ()
            if 0 <= source < stages:
                needed = (program.exchange(lines[t, d], 1_000_000, 30_000, receives=(line[source],), stream=stream),)
            for _ in range(2):
                name, ns = ("forward_gemm", 250_000) if is_forward else ("backward_gemm", 500_000)
                with program.range("aten::linear", "operator", _SHAPES):
                    program.host(12_000)
                    made = program.kernel(name, ns, after=needed)
                needed = (program.collective("all_reduce", rows[s, d], 1_000_000, 30_000, stream=COMM_STREAM + 5,
                                             after=(made,)),)  # fmt: skip
            if place == 1:
                strike(program, faults, number)
                needed = (*needed, program.launched - 1)
            if 0 <= target < stages:
                program.exchange(lines[t, d], 1_000_000, 30_000, sends=(line[target],), stream=stream + 1, after=needed)
        last = program.collective("all_reduce", across[t, s], 8_000_000, 300_000, stream=COMM_STREAM + 6, after=needed)
        optimizer(program, (last,))

    groups = (*rows.values(), *lines.values(), *across.values())
    return job_of(len(places), steps, step, groups, faults)
