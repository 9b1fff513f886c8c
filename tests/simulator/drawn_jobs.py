"""Jobs whose figures are drawn: messages on one stream, a slow network of one group, a warm-up, lengths beside a slow GPU."""

import random

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, optimizer
from traceanalyzer.analyses.replay.schedule_orders import FORWARD, Pass, order_of
from traceanalyzer.analyses.replay.schedule_play import Message, needs, with_messages

_SHAPES = "[[4096, 768], [768, 768]]"


def interleaved(ranks: int = 4, steps: int = 4, faults: Faults = (), *, microbatches: int = 8, chunks: int = 2,
                forward_ns: int = 500_000, is_one_stream: bool = True) -> Job:  # fmt: skip
    """Interleaved 1F1B; all messages of a rank on one stream, or those of each neighbour and direction on their own."""
    world = Group("0", tuple(range(ranks)))
    order = order_of("interleaved", ranks, microbatches, chunks)
    items = with_messages(order) or {}
    present = {one for passes in order.values() for one in passes}

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        done: dict[Pass, int] = {}
        for item in items[program.rank]:
            if isinstance(item, Message):
                own = 2 * ((item.peer - program.rank) % ranks) + item.is_send
                stream = COMM_STREAM + (0 if is_one_stream else own)
                peer = {"sends" if item.is_send else "receives": (item.peer,)}
                after = (done[item.of],) if item.is_send else ()
                made = program.exchange(world, 1_000_000, 20_000, stream=stream, after=after, **peer)
                if not item.is_send:
                    done[item.of] = made
                continue
            after = tuple(done[one] for one in needs(item, ranks * chunks - 1, present))
            name, ns = ("forward_gemm", forward_ns) if item[0] == FORWARD else ("backward_gemm", 2 * forward_ns)
            operator = "aten::linear" if item[0] == FORWARD else "autograd::engine::evaluate_function: AddmmBackward0"
            with program.range("PP:{1}{0}{2}".format(*item)), program.range(operator, "operator", _SHAPES):
                program.host(15_000)
                done[item] = program.kernel(name, ns, after=after, stream=COMPUTE_STREAM)
        strike(program, faults, number)
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def slow_network(tensor: int = 2, data: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 4) -> Job:
    """Tensor x data parallel; `link` slows the gradients' exchange of the data groups whose ranks it names."""
    rows = [Group(f"tp{n}", tuple(range(n * tensor, (n + 1) * tensor)), "tp") for n in range(data)]
    columns = [Group(f"dp{n}", tuple(range(n, tensor * data, tensor)), "dp") for n in range(tensor)]

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        slow_ns = time_ns(faults, "link", program.rank, number) // layers
        load(program, faults, number)
        last = -1
        for layer in range(2 * layers):
            needed = (last,) if last >= 0 else ()
            with program.range("aten::mm", "operator", _SHAPES):
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


def with_warm_up(ranks: int = 4, steps: int = 6, faults: Faults = (), *, times: float = 6.0) -> Job:
    """Data parallel whose first step takes all hosts many times as long: compilation, first calls of libraries."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        if number == 0:
            program.host(round(times * 6_000_000), "cudaModuleLoadData", "call")
        reduced = -1
        for layer in range(10):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 15_000, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def lengths_and_faults(
    ranks: int = 4, steps: int = 8, faults: Faults = (), *, spread: float = 0.2, seed: int = 0
) -> Job:
    """Data parallel with sequences of random lengths, another one on each rank and in each step, and faults on top."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)
    times = {(rank, step): 1 + chance.uniform(-spread, spread) for rank in range(ranks) for step in range(steps)}

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        factor = times[program.rank, number]
        shapes = f"[[{round(4096 * factor)}, 768], [768, 768]]"
        reduced = -1
        for layer in range(10):
            with program.range("aten::linear", "operator", shapes):
                program.host(15_000)
                made = program.kernel("gemm", round(500_000 * factor), blocks=round(4096 * factor))
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)
