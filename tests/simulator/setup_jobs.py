"""Jobs of which a part is set up otherwise: what is gathered, reduced, recomputed, drawn as a graph, run on another GPU."""

import numpy as np

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.grid_jobs import slowed
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.wire_jobs import layer_of_after
from tests.simulator.workloads import job_of, layer_of, microbatch, one_forward_one_backward, optimizer

_SHAPES = "[[4096, 768], [768, 768]]"


def _is(faults: Faults, what: str, rank: int, step: int) -> bool:
    return any(fault.what == what and fault.hits(rank, step) for fault in faults)


def regathered(ranks: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 6, gather_ns: int = 700_000,
               backward_bytes: float = 1.0) -> Job:  # fmt: skip
    """Fully sharded: parameters are dropped after forward and gathered once more in backward (where `again` is)."""
    sizes = [80_000_000 + 500_000 * layer for layer in range(layers)]
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            with program.range("forward"):
                got = program.collective("all_gather", world, sizes[layer], gather_ns)
                with program.range("aten::linear", "operator", _SHAPES):
                    program.host(12_000)
                    program.kernel("forward_gemm", 300_000, after=(got,))
            if layer == 1:
                strike(program, faults, number)
        last = -1
        for layer in reversed(range(layers)):
            with program.range("backward"):
                needed: tuple[int, ...] = ()
                if _is(faults, "again", program.rank, number):
                    needed = (program.collective("all_gather", world, round(backward_bytes * sizes[layer]), gather_ns),)
                made = layer_of_after(program, "backward_gemm", 600_000, needed)
                last = program.collective("reduce_scatter", world, sizes[layer], 300_000, stream=COMM_STREAM + 1,
                                          after=(made,))  # fmt: skip
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults)


def queued(ranks: int = 8, steps: int = 4, faults: Faults = ()) -> Job:
    """Two all-gathers and an all-reduce a layer on one stream take longer than all that is computed beside them."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        made: tuple[int, ...] = ()
        for _ in range(10):
            for _ in range(2):
                program.collective("all_gather", world, 8_000_000, 400_000, after=made)
            made = (layer_of(program, "aten::linear", "gemm", 500_000, 10_000, _SHAPES),)
            last = program.collective("all_reduce", world, 4_000_000, 100_000, after=made)
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults)


def medium(ranks: int = 4, steps: int = 4, faults: Faults = (), *, calls: int = 40, each_ns: int = 180_000,
           large_ns: int = 1_400_000) -> Job:  # fmt: skip
    """Gradients are reduced in pieces of 8 MB, each far from the links' rate, beside few pieces of 320 MB."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            layer_of(program, "aten::linear", "gemm", 700_000, 12_000, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
        reduced = -1
        for _ in range(calls):
            reduced = program.collective("all_reduce", world, 4_000_000, each_ns, after=(program.launched - 1,))
        for _ in range(2):
            reduced = program.collective("all_reduce", world, 160_000_000, large_ns, after=(reduced,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def half_linked(ranks: int = 16, steps: int = 4, faults: Faults = (), *, shard: int = 4) -> Job:
    """Sharded in rows; each waits for its gathers, which the fault `link` slows in some rows."""
    rows = [Group(f"s{n}", tuple(range(n * shard, (n + 1) * shard)), "shard") for n in range(ranks // shard)]
    world = Group("world", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // shard]
        load(program, faults, number)
        last = -1
        for layer in range(8):
            got = program.collective("all_gather", row, 40_000_000, 350_000, after=(program.launched - 1,))
            last = layer_of_after(program, "gemm", 500_000, (got,))
            if layer == 1:
                strike(program, faults, number)
        last = program.collective("all_reduce", world, 8_000_000, 300_000, stream=COMM_STREAM + 1, after=(last,))
        optimizer(program, (last,))

    return slowed(job_of(ranks, steps, step, (*rows, world), faults), "shard", "all_gather", faults)


def accumulated(tensor: int = 2, data: int = 2, steps: int = 4, faults: Faults = (), *, micro: int = 4) -> Job:
    """Accumulates gradients in tensor x data parallel; groups with the fault `sync` reduce in every micro-step."""
    rows = [Group(f"tp{n}", tuple(range(n * tensor, (n + 1) * tensor)), "tp") for n in range(data)]
    columns = [Group(f"dp{n}", tuple(range(n, tensor * data, tensor)), "dp") for n in range(tensor)]

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        load(program, faults, number)
        reduced: tuple[int, ...] = ()
        for each in range(micro):
            for layer in range(4):
                made = layer_of_after(program, "forward_gemm" if layer < 2 else "backward_gemm", 400_000, reduced)
                reduced = (program.collective("all_reduce", row, 1_000_000, 40_000, after=(made,)),)
            if each == micro - 1 or _is(faults, "sync", program.rank, number):
                last = program.collective(
                    "all_reduce", column, 60_000_000, 900_000, stream=COMM_STREAM + 1, after=reduced
                )
                reduced = (last,)
        optimizer(program, reduced)

    return job_of(tensor * data, steps, step, (*rows, *columns), faults)


def staged(stages: int = 2, data: int = 2, steps: int = 4, faults: Faults = ()) -> Job:
    """Pipelines side by side; the first stage has three times as many parameters, and reduces three times as often."""
    lines = [Group(f"pp{n}", tuple(range(n * stages, (n + 1) * stages)), "pp") for n in range(data)]
    columns = [Group(f"dp{n}", tuple(range(n, stages * data, stages)), "dp") for n in range(stages)]

    def step(program: Program, number: int) -> None:
        line, stage = divmod(program.rank, stages)
        load(program, faults, number)
        for place, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, 4, 1)):
            microbatch(program, lines[line], stage, stages, 400_000, is_forward=is_forward)
            if place == 1:
                strike(program, faults, number)
        last = program.launched - 1
        for _ in range(3 if stage == 0 else 1):
            last = program.collective(
                "all_reduce", columns[stage], 60_000_000, 900_000, stream=COMM_STREAM + 8, after=(last,)
            )
        optimizer(program, (last,))

    return job_of(stages * data, steps, step, (*lines, *columns), faults)


def experts(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 4, spread: float = 0.12,
            seed: int = 9) -> Job:  # fmt: skip
    """Experts whose loads differ a little in each step and layer; one rank's is `hot`, always."""
    world = Group("0", tuple(range(ranks)))
    loads = np.random.default_rng(seed).normal(1, spread, (steps, 2 * layers, ranks))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(2 * layers):
            made = layer_of(program, "aten::linear", "dense_gemm", 250_000, 12_000, _SHAPES)
            came = program.collective("all_to_all", world, 2_000_000, 60_000, after=(made,))
            hot_ns = time_ns(faults, "hot", program.rank, number) // (2 * layers)
            with program.range("aten::_grouped_mm", "operator", _SHAPES):
                program.host(12_000)
                made = program.kernel("expert_gemm", round(300_000 * loads[number, layer, program.rank]) + hot_ns,
                                      after=(came,))  # fmt: skip
            back = program.collective("all_to_all", world, 2_000_000, 60_000, after=(made,))
            program.kernel("combine", 30_000, after=(back,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def replayed(ranks: int = 4, steps: int = 5, faults: Faults = (), *, kernels: int = 120) -> Job:
    """Data parallel in CUDA graphs; ranks with the fault `eager` launch each kernel, fast enough for their GPU."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        names = [(f"kernel_{place % 4}", 30_000) for place in range(kernels)]
        if not _is(faults, "eager", program.rank, number):
            program.host(30_000, "graphs.py(88): replay", "frame")
            made = program.graph(names)
        else:
            for name, ns in names:
                made = layer_of(program, f"aten::{name}", name, ns, 6_000, _SHAPES)
        strike(program, faults, number)
        for _ in range(4):
            made = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made, program.launched - 1))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def masked(ranks: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 12) -> Job:
    """Host-bound, one host slower (`slow`, a layer); another rank's GPU also runs a dense mask's kernels (`mask`)."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        host_ns = 400_000 + time_ns(faults, "slow", program.rank, number) // layers
        mask_ns = time_ns(faults, "mask", program.rank, number) // layers
        reduced = -1
        for _ in range(layers):
            with program.range("block"):
                program.host(host_ns, "model.py(12): block", "frame")
            made = layer_of(program, "aten::linear", "gemm", 250_000, 15_000, _SHAPES)
            if mask_ns:
                made = layer_of(
                    program, "aten::masked_fill", "masked_fill_kernel", mask_ns, 10_000, "[[8, 1, 4096, 4096]]"
                )
            reduced = program.collective("all_reduce", world, 2_000_000, 60_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def looped_optimizer(ranks: int = 4, steps: int = 4, faults: Faults = (), *, parameters: int = 300) -> Job:
    """Every rank's optimizer is a loop of small operations over its parameters."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for _ in range(8):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 15_000, _SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        with program.range("Optimizer.step#AdamW.step"):
            for place in range(parameters):
                for name in ("mul_", "lerp_", "addcdiv_"):
                    with program.range(f"aten::{name}", "operator"):
                        program.host(9_000)
                        program.kernel(f"elementwise_{name}", 2_500, after=(reduced,) if not place else ())

    return job_of(ranks, steps, step, (world,), faults)


def decoding_aside(ranks: int = 4, steps: int = 4, faults: Faults = (), *, times: int = 4, aside: str = "prefetch.py(41): decode",
                   layers: int = 24) -> Job:  # fmt: skip
    """Another thread's Python (`gil`) holds the interpreter, while the main thread does nothing that is recorded."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        each_ns = time_ns(faults, "gil", program.rank, number) // times
        load(program, faults, number)
        for layer in range(layers):
            if each_ns and layer % (layers // times) == 2:
                if aside:
                    program.aside(each_ns, aside)
                program.host(each_ns, "")
            made = layer_of(program, "aten::linear", "gemm", 110_000, 20_000, _SHAPES)
            reduced = program.collective("all_reduce", world, 1_000_000, 25_000, after=(made,))
            program.kernel("residual", 8_000, after=(reduced,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)
