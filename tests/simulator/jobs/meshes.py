"""Jobs whose ranks form a mesh: rings of context parallelism, keys and values gathered, tensor beside data parallel."""

from collections.abc import Mapping

from tests.simulator.faults import Faults, load, strike
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of

_LAYERS = 4

_NONE: Mapping[int, int] = {}


def tensor_by_data(tensor: int = 4, data: int = 2, steps: int = 3, *, describes: bool = False,
                   slow_compute_ns: Mapping[int, int] = _NONE) -> Job:  # fmt: skip
    """Tensor parallel ranks next to each other, data parallel ones every `tensor`; a rank's layers may take longer."""
    rows = [
        Group(f"{row:040x}", tuple(range(row * tensor, (row + 1) * tensor)), "mesh_tp" if describes else "undefined")
        for row in range(data)
    ]
    columns = [
        Group(
            f"{data + column:040x}",
            tuple(range(column, tensor * data, tensor)),
            "mesh_dp" if describes else "undefined",
        )
        for column in range(tensor)
    ]
    programs = []
    for rank in range(tensor * data):
        program = Program(rank)
        row, column = rows[rank // tensor], columns[rank % tensor]
        for step in range(steps):
            with program.range(f"ProfilerStep#{step}"):
                reduced = -1
                for phase in ("forward", "backward"):
                    with program.range(phase):
                        for _ in range(_LAYERS):
                            program.host(15_000)
                            done = program.kernel(f"{phase}_gemm", 200_000 + slow_compute_ns.get(rank, 0))
                            done = program.collective("all_reduce", row, 1_000_000, 50_000, after=(done,))
                            done = program.kernel(f"{phase}_gemm", 200_000, after=(done,))
                            if phase == "backward":
                                reduced = program.collective("all_reduce", column, 4_000_000, 90_000,
                                                             stream=COMM_STREAM + 1, after=(done,))  # fmt: skip
                with program.range("optimizer"):
                    program.kernel("adam", 300_000, after=(reduced,))
                program.sync()
        programs.append(program)
    return Job(tuple(programs), (*rows, *columns))


def pipeline_by_data(stages: int = 2, data: int = 4, microbatches: int = 4, steps: int = 3, *,
                     slow_compute_ns: Mapping[int, int] = _NONE) -> Job:  # fmt: skip
    """GPipe in every replica, its ranks `data` apart; a stage's replicas reduce its gradients after their backward."""
    rows = [Group(f"{replica:040x}", tuple(range(replica, stages * data, data)), "mesh_pp") for replica in range(data)]
    columns = [
        Group(f"{data + stage:040x}", tuple(range(stage * data, (stage + 1) * data)), "mesh_dp")
        for stage in range(stages)
    ]
    programs = []
    for rank in range(stages * data):
        program = Program(rank)
        row, column = rows[rank % data], columns[rank // data]
        before, after = rank - data, rank + data
        for step in range(steps):
            with program.range(f"ProfilerStep#{step}"):
                for phase, source, target, ns in (
                    ("forward", before, after, 300_000), ("backward", after, before, 600_000),
                ):  # fmt: skip
                    with program.range(phase):
                        for _ in range(microbatches):
                            program.host(5_000)
                            done = _stage(program, row, source, target, phase, ns + slow_compute_ns.get(rank, 0))
                reduced = program.collective("all_reduce", column, 8_000_000, 150_000, stream=COMM_STREAM + 1,
                                             after=(done,))  # fmt: skip
                with program.range("optimizer"):
                    program.kernel("adam", 200_000, after=(reduced,))
                program.sync()
        programs.append(program)
    return Job(tuple(programs), (*rows, *columns))


def _stage(program: Program, row: Group, source: int, target: int, phase: str, ns: int) -> int:
    """Receive, compute, send; the number of the computation."""
    needed: tuple[int, ...] = ()
    if source in row.ranks:
        needed = (program.exchange(row, 1_000_000, 30_000, receives=(source,)),)
    done = program.kernel(f"{phase}_gemm", ns, after=needed)
    if target in row.ranks:
        program.exchange(row, 1_000_000, 30_000, sends=(target,), after=(done,))
    return done


def neighbours(ranks: int = 4, steps: int = 5, faults: Faults = (), *, sweeps: int = 10) -> Job:
    """A domain split over ranks in a line: after each sweep every rank exchanges its edges with the ranks beside it.

    No pipeline: nothing goes one way first. A sweep needs the edges of the one before.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        beside = tuple(peer for peer in (program.rank - 1, program.rank + 1) if 0 <= peer < ranks)
        needed: tuple[int, ...] = ()
        for sweep in range(sweeps):
            with program.range("aten::cudnn_convolution", "operator", "[[4, 64, 512, 1024], [64, 64, 3, 3]]"):
                swept = program.kernel("sm90_convolution", 600_000, after=needed)
            if sweep == 1:
                strike(program, faults, number)
            needed = (program.exchange(world, 262_144, 20_000, sends=beside, receives=beside, after=(swept,)),)
        program.kernel("reduce_mean", 50_000, after=needed)

    return job_of(ranks, steps, step, (world,), faults)
