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
    layer_of,
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


def beside(ranks: int = 4, steps: int = 5, faults: Faults = (), *, extra: tuple[int, ...] = (1, 2)) -> Job:
    """Data parallel, but some ranks also exchange something of their own before backward, while the fault `link` is."""
    world, own = Group("0", tuple(range(ranks))), Group("1", extra, "embeddings")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(6):
            layer_of(program, "aten::linear", "forward_gemm", 250_000, 15_000)
            if layer == 1:
                strike(program, faults, number)
        needed: tuple[int, ...] = ()
        extra_ns = time_ns(faults, "link", program.rank, number)
        if extra_ns:
            needed = (program.collective("all_gather", own, 64_000_000, extra_ns, stream=COMM_STREAM + 1,
                                         after=(program.launched - 1,)),)  # fmt: skip
        reduced = -1
        for _ in range(6):
            with program.range("aten::linear_backward", "operator"):
                program.host(15_000)
                made = program.kernel("backward_gemm", 500_000, after=needed)
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world, own), faults)


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
            with program.range("aten::linear", "operator", SHAPES):
                program.host(10_000)
                last = program.kernel("gemm", 400_000, after=(sent,))
        reduced = program.collective("all_reduce", world, 8_000_000, 200_000, stream=COMM_STREAM + 1, after=(last,))
        optimizer(program, (reduced,))

    return job_of(nodes * gpus, steps, step, (world, *pairs), faults)


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


def sent_again(ranks: int = 8, steps: int = 6, faults: Faults = ()) -> Job:
    """Data parallel; one all-reduce of a step is sent again (`link`): all ranks of it move data longer."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(10):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 15_000, SHAPES)
            again_ns = time_ns(faults, "link", program.rank, number) if layer == 6 else 0
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000 + again_ns, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


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


def paired_nodes(gpus: int = 4, nodes: int = 4, steps: int = 3, faults: Faults = (), *, layers: int = 4,
                 noise: Noise | None = None) -> Job:  # fmt: skip
    """Sharded within nodes, replicated over pairs of nodes; `nic`: what reductions between nodes take this rank more."""
    rows = adjacent("s", gpus, nodes, "shard")
    pairs = {(n, k): Group(f"r{n}_{k}", (2 * n * gpus + k, (2 * n + 1) * gpus + k), "replicate")
             for n in range(nodes // 2) for k in range(gpus)}  # fmt: skip
    world = Group("w", tuple(range(nodes * gpus)), "world")

    def step(program: Program, number: int) -> None:
        row, pair = rows[program.rank // gpus], pairs[program.rank // (2 * gpus), program.rank % gpus]
        slow_ns = time_ns(faults, "nic", program.rank, number) // layers
        load(program, faults, number)
        for layer in range(2 * layers):
            gathered = program.collective("all_gather", row, 8_000_000, 70_000)
            made = after_of(program, "aten::linear", "gemm", 300_000 if layer < layers else 600_000, (gathered,))
            if layer == 1:
                strike(program, faults, number)
            if layer >= layers:
                made = program.collective(
                    "reduce_scatter", row, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,)
                )
                made = program.collective(
                    "all_reduce", pair, 4_000_000, 450_000 + slow_ns, stream=COMM_STREAM + 2, after=(made,)
                )
        made = program.collective("all_reduce", world, 1, 20_000, stream=COMM_STREAM + 3, after=(made,))
        optimizer(program, (made,))

    return noisy_job(nodes * gpus, steps, step, (*rows, *pairs.values(), world), faults, noise)


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
