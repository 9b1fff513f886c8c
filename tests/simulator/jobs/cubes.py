"""Three kinds of groups at once: tensor or expert, pipeline and data parallel."""

from collections.abc import Sequence

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.grid_jobs import slowed
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import SHAPES, after_of, job_of, noisy_job, one_forward_one_backward, optimizer


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
                with program.range("aten::linear", "operator", SHAPES):
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


def cubed(of: str = "tp", steps: int = 5, faults: Faults = ()) -> Job:
    """Tensor, pipeline and data parallel; all-reduces of the `of` groups can be slow."""
    return slowed(cube(2, 2, 2, steps, faults), of, "all_reduce", faults)


def tensor_in_pipeline(tensor: int = 2, stages: int = 3, steps: int = 4, faults: Faults = (), *, microbatches: int = 6,
                       stage_ns: Sequence[int] = (300_000, 300_000, 300_000)) -> Job:  # fmt: skip
    """1F1B of tensor parallel stages, of which one may be heavier; rank t + tensor · stage."""
    rows = adjacent("tp", tensor, stages)
    lines = strided("pp", stages, tensor)

    def step(program: Program, number: int) -> None:
        s, t = divmod(program.rank, tensor)
        load(program, faults, number)
        for place, (is_forward, _) in enumerate(one_forward_one_backward(s, stages, microbatches, 1)):
            source, target = (s - 1, s + 1) if is_forward else (s + 1, s - 1)
            stream, line = COMM_STREAM + (0 if is_forward else 2), lines[t].ranks
            needed: tuple[int, ...] = ()
            if 0 <= source < stages:
                needed = (program.exchange(lines[t], 1_000_000, 30_000, receives=(line[source],), stream=stream),)
            with program.range("aten::linear", "operator", SHAPES):
                program.host(12_000)
                ns = stage_ns[s] * (1 if is_forward else 2)
                made = program.kernel("forward_gemm" if is_forward else "backward_gemm", ns, after=needed)
            if place == 1:
                strike(program, faults, number)
                made = max(made, program.launched - 1)
            made = program.collective("all_reduce", rows[s], 1_000_000, 30_000, stream=COMM_STREAM + 5, after=(made,))
            if 0 <= target < stages:
                program.exchange(lines[t], 1_000_000, 30_000, sends=(line[target],), stream=stream + 1, after=(made,))
        optimizer(program, (made,))

    return job_of(tensor * stages, steps, step, (*rows, *lines), faults)


def experts_in_stages(stages: int = 2, experts: int = 4, steps: int = 3, faults: Faults = (), *, micro: int = 6,
                      noise: Noise | None = None) -> Job:  # fmt: skip
    """Pipelines whose stages hold experts, exchanged among the ranks of a stage in each pass; hosts read the routing.

    `route`: what a rank's host takes to route.
    """
    rows = adjacent("ep", experts, stages)
    lines = strided("pp", stages, experts)

    def step(program: Program, number: int) -> None:
        stage, place = divmod(program.rank, experts)
        line, row = lines[place], rows[stage]
        route_ns = time_ns(faults, "route", program.rank, number) // (2 * micro)
        load(program, faults, number)
        for at, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, micro, 1)):
            way, stream = 1 if is_forward else -1, COMM_STREAM + (0 if is_forward else 2)
            needed: tuple[int, ...] = ()
            if 0 <= stage - way < stages:
                needed = (
                    program.exchange(line, 2_000_000, 40_000, receives=(line.ranks[stage - way],), stream=stream),
                )
            made = after_of(program, "aten::linear", "dense_gemm", 200_000, needed)
            if route_ns:
                with program.range("route"):
                    program.host(route_ns, "router.py(91): assign", "frame")
            if at == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective("all_to_all", row, 2_000_000, 70_000, stream=COMM_STREAM + 5, after=(made,))
            made = after_of(
                program,
                "aten::_grouped_mm",
                "grouped_gemm",
                200_000 * (3 - way),
                (made,),
                shapes="[[4096, 2048], [8, 2048, 8192]]",
            )
            made = program.collective("all_to_all", row, 2_000_000, 70_000, stream=COMM_STREAM + 5, after=(made,))
            made = after_of(program, "aten::index_add", "combine", 20_000, (made,), 8_000)
            if 0 <= stage + way < stages:
                program.exchange(
                    line, 2_000_000, 40_000, sends=(line.ranks[stage + way],), stream=stream + 1, after=(made,)
                )
        made = program.collective("all_reduce", row, 12_000_000, 200_000, stream=COMM_STREAM + 6, after=(made,))
        optimizer(program, (made,))

    return noisy_job(stages * experts, steps, step, (*rows, *lines), faults, noise)
