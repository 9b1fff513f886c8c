"""Jobs with groups whose links can be slow: rows, columns, nodes, cards, edges."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.grid_jobs import slowed
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import (
    SHAPES,
    WIDE_SHAPES,
    after_of,
    job_of,
    linear_after,
    noisy_job,
    optimizer,
)


def links(rows: int = 3, columns: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Hybrid sharding; a row's gathers take longer where its links are slow (`link`)."""
    inner = adjacent("shard", columns, rows)
    outer = strided("rep", rows, columns, "replicate")

    def step(program: Program, number: int) -> None:
        row = program.rank // columns
        load(program, faults, number)
        last = -1
        for _ in range(8):
            program.host(10_000)
            slow_ns = time_ns(faults, "link", program.rank, number) // 8
            gathered = program.collective("all_gather", inner[row], 8_000_000, 60_000 + slow_ns)
            with program.range("aten::linear", "operator"):
                last = program.kernel("gemm", 250_000, after=(gathered,))
        reduced = program.collective("all_reduce", outer[program.rank % columns], 8_000_000, 100_000,
                                     stream=COMM_STREAM + 1, after=(last,))  # fmt: skip
        optimizer(program, (reduced,))

    return job_of(rows * columns, steps, step, (*inner, *outer), faults)


def slow_network(tensor: int = 2, data: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 4) -> Job:
    """Tensor x data parallel; `link` slows the gradients' exchange of the data groups whose ranks it names."""
    rows = adjacent("tp", tensor, data)
    columns = strided("dp", data, tensor)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        slow_ns = time_ns(faults, "link", program.rank, number) // layers
        load(program, faults, number)
        last = -1
        for layer in range(2 * layers):
            needed = (last,) if last >= 0 else ()
            with program.range("aten::mm", "operator", SHAPES):
                program.host(15_000)
                last = program.kernel("gemm", 250_000, after=needed)
            if layer == 1:
                strike(program, faults, number)
                last = program.launched - 1
            last = program.collective("all_reduce", row, 2_000_000, 40_000, after=(last,))
        for _ in range(layers):
            last = program.collective("reduce_scatter", column, 8_000_000, 150_000 + slow_ns, stream=COMM_STREAM + 1,
                                      after=(last,))  # fmt: skip
        optimizer(program, (last,))

    return job_of(tensor * data, steps, step, (*rows, *columns), faults)


def mesh(tensor: int = 4, data: int = 4, steps: int = 5, faults: Faults = (), *, of: str = "dp", tensor_ns: int = 80_000,
         data_ns: int = 1_500_000) -> Job:  # fmt: skip
    """Tensor within data parallelism; `link` slows the all-reduces `of` one kind of groups."""
    rows = adjacent("tp", tensor, data)
    columns = strided("dp", data, tensor)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(10):
            made = linear_after(program, "forward_gemm" if layer < 5 else "backward_gemm", 300_000, needed)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            needed = (program.collective("all_reduce", row, 2_000_000, tensor_ns, after=(made,)),)
        for _ in range(2):
            needed = (program.collective("all_reduce", column, 60_000_000, data_ns // 2, stream=COMM_STREAM + 1,
                                         after=needed),)  # fmt: skip
        optimizer(program, needed)

    return slowed(job_of(tensor * data, steps, step, (*rows, *columns), faults), of, "all_reduce", faults)


def half_linked(ranks: int = 16, steps: int = 4, faults: Faults = (), *, shard: int = 4) -> Job:
    """Sharded in rows; each waits for its gathers, which the fault `link` slows in some rows."""
    rows = adjacent("s", shard, ranks // shard, "shard")
    world = Group("world", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // shard]
        load(program, faults, number)
        last = -1
        for layer in range(8):
            got = program.collective("all_gather", row, 40_000_000, 350_000, after=(program.launched - 1,))
            last = linear_after(program, "gemm", 500_000, (got,))
            if layer == 1:
                strike(program, faults, number)
        last = program.collective("all_reduce", world, 8_000_000, 300_000, stream=COMM_STREAM + 1, after=(last,))
        optimizer(program, (last,))

    return slowed(job_of(ranks, steps, step, (*rows, world), faults), "shard", "all_gather", faults)


def two_nodes(
    gpus: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 6, noise: Noise | None = None
) -> Job:
    """Sharded within each of two nodes; GPU k of both nodes reduces over its own network card; `link` is a card's."""
    rows = adjacent("s", gpus, 2, "shard")
    pairs = strided("r", 2, gpus, "replicate")

    def step(program: Program, number: int) -> None:
        row, pair = rows[program.rank // gpus], pairs[program.rank % gpus]
        slow_ns = time_ns(faults, "link", program.rank, number) // layers
        load(program, faults, number)
        for layer in range(layers):
            program.host(12_000)
            gathered = program.collective("all_gather", row, 8_000_000, 70_000)
            with program.range("aten::linear", "operator", WIDE_SHAPES):
                program.kernel("forward_gemm", 300_000, after=(gathered,))
            if layer == 1:
                strike(program, faults, number)
        reduced = []
        for _ in range(layers):
            program.host(12_000)
            gathered = program.collective("all_gather", row, 8_000_000, 70_000)
            with program.range("aten::linear_backward", "operator", WIDE_SHAPES):
                made = program.kernel("backward_gemm", 600_000, after=(gathered,))
            made = program.collective("reduce_scatter", row, 8_000_000, 90_000, stream=COMM_STREAM + 1, after=(made,))
            reduced.append(program.collective("all_reduce", pair, 4_000_000, 500_000 + slow_ns, stream=COMM_STREAM + 2,
                                              after=(made,)))  # fmt: skip
        optimizer(program, tuple(reduced))

    return noisy_job(2 * gpus, steps, step, (*rows, *pairs), faults, noise)


def own_links(tensor: int = 2, data: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 8,
              noise: Noise | None = None) -> Job:  # fmt: skip
    """Tensor within data parallel, reduced in pieces beside backward; a GPU's links may be slow, in both its groups.

    `port`: what its tensor group's transfers take more; `reach`: its data group's.
    """
    rows = adjacent("tp", tensor, data)
    columns = strided("dp", data, tensor)

    def more_ns(what: str, group: Group, number: int) -> int:
        return max(time_ns(faults, what, rank, number) for rank in group.ranks)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        load(program, faults, number)
        made = program.launched - 1
        for layer in range(2 * layers):
            made = after_of(program, "aten::mm", "gemm", 230_000 if layer < layers else 460_000, (made,))
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective(
                "all_reduce", row, 2_000_000, 45_000 + more_ns("port", row, number) // (2 * layers), after=(made,)
            )
            if layer >= layers:
                last = program.collective(
                    "all_reduce", column, 6_000_000, 200_000 + more_ns("reach", column, number) // layers, stream=COMM_STREAM + 1,
                    after=(made,),
                )  # fmt: skip
        optimizer(program, (last,))

    return noisy_job(tensor * data, steps, step, (*rows, *columns), faults, noise)
