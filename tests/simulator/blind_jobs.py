"""Jobs that were written down, with their truth, before any report of one was seen: late by what a GPU or its input does."""

import random

from tests.simulator.faults import Faults, load, strike
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, one_forward_one_backward, optimizer

_SHAPES = "[[4096, 768], [768, 768]]"


def factor(faults: Faults, what: str, rank: int, step: int) -> float:
    """How many times as long something takes the rank in the step."""
    return next((fault.factor for fault in faults if fault.what == what and fault.hits(rank, step)), 1.0)


def heated(tensor: int = 2, data: int = 4, steps: int = 8, faults: Faults = (), *, by_step: float = 0.08) -> Job:
    """Tensor x data parallel; a GPU with the fault `heat` takes longer for its kernels from step to step, from the third on."""
    rows = [Group(f"tp{n}", tuple(range(n * tensor, (n + 1) * tensor)), "tp") for n in range(data)]
    columns = [Group(f"dp{n}", tuple(range(n, tensor * data, tensor)), "dp") for n in range(tensor)]

    def step(program: Program, number: int) -> None:
        is_hot = any(fault.what == "heat" and fault.hits(program.rank, number) for fault in faults)
        times = 1 + is_hot * by_step * max(0, number - 1)
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(8):
            with program.range("aten::mm", "operator", _SHAPES):
                program.host(15_000)
                name = "forward_gemm" if layer < 4 else "backward_gemm"
                made = program.kernel(name, round(500_000 * times), after=needed)
            needed = (program.collective("all_reduce", rows[program.rank // tensor], 2_000_000, 40_000, after=(made,)),)
        reduced = program.collective("all_reduce", columns[program.rank % tensor], 16_000_000, 250_000,
                                     stream=COMM_STREAM + 1, after=needed)  # fmt: skip
        optimizer(program, (reduced,))

    return job_of(tensor * data, steps, step, (*rows, *columns), faults)


def slow_memory(ranks: int = 8, steps: int = 5, faults: Faults = ()) -> Job:
    """Data parallel; the fault `memory` makes kernels longer that only move bytes, products are as fast as everybody's."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        times = factor(faults, "memory", program.rank, number)
        load(program, faults, number)
        reduced = -1
        for _ in range(10):
            layer_of(program, "aten::linear", "nvjet_tst_128x256_64x4", 300_000, 10_000, _SHAPES)
            layer_of(program, "aten::native_layer_norm", "vectorized_layer_norm_kernel", round(60_000 * times), 8_000)
            made = layer_of(program, "aten::gelu", "vectorized_elementwise_kernel", round(120_000 * times), 8_000)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def other_library(ranks: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Sharded; a rank with the fault `library` runs other kernels for the same products, its GPU is the others'."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        times = factor(faults, "library", program.rank, number)
        name = "nvjet_tst_128x256_64x4" if times == 1 else "cutlass_80_tensorop_bf16_s16816gemm_128x128"
        load(program, faults, number)
        for _ in range(10):
            gathered = program.collective("all_gather", world, 8_000_000, 60_000)
            with program.range("aten::linear", "operator", _SHAPES):
                program.host(15_000)
                program.kernel(name, round(600_000 * times), after=(gathered,))
            made = layer_of(program, "aten::gelu", "gelu", 90_000, 10_000)
            last = program.collective("reduce_scatter", world, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults)


def other_batch(ranks: int = 8, steps: int = 4, faults: Faults = ()) -> Job:
    """Sharded; a rank with the fault `batch` has so many times the samples: larger shapes, longer kernels, larger grids."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        times = factor(faults, "batch", program.rank, number)
        shapes = f"[[{round(4096 * times)}, 768], [768, 768]]"
        load(program, faults, number)
        for layer in range(12):
            gathered = program.collective("all_gather", world, 8_000_000, 60_000)
            operator = "aten::linear" if layer < 6 else "autograd::engine::evaluate_function: AddmmBackward0"
            with program.range(operator, "operator", shapes):
                program.host(15_000)
                made = program.kernel("nvjet_tst_128x256", round(500_000 * times), after=(gathered,),
                                      blocks=round(256 * times))  # fmt: skip
            last = program.collective("reduce_scatter", world, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults)


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
        made = layer_of(program, "aten::linear", "forward_gemm", 250_000, 15_000, _SHAPES)
    reduced = -1
    for _ in range(8):
        if has_input:
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 500_000, 15_000, _SHAPES)
        else:
            program.host(10_000, "main_hook")
        reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,) if has_input else ())
    if has_input:
        optimizer(program, (reduced,))


def lengths_anew(ranks: int = 4, steps: int = 8, faults: Faults = (), *, seed: int = 11) -> Job:
    """Sharded, each rank's sequences as long as they come; the capture has no shapes."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)
    times = {(rank, step): chance.lognormvariate(0, 0.25) for rank in range(ranks) for step in range(steps)}

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(10):
            gathered = program.collective("all_gather", world, 8_000_000, 60_000)
            with program.range("aten::linear", "operator"):
                program.host(15_000)
                made = program.kernel("gemm", round(500_000 * times[program.rank, number]), after=(gathered,))
            last = program.collective("reduce_scatter", world, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults)


def uneven_accumulation(ranks: int = 4, steps: int = 4, faults: Faults = (), *, micro: int = 4) -> Job:
    """Accumulates gradients; a rank with the fault `micro` has one microbatch more than the others."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        has_more = any(fault.what == "micro" and fault.hits(program.rank, number) for fault in faults)
        load(program, faults, number)
        made = -1
        for _ in range(micro + has_more):
            for _ in range(5):
                layer_of(program, "aten::linear", "forward_gemm", 200_000, 12_000, _SHAPES)
            for _ in range(5):
                made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000, 12_000, _SHAPES)
        for _ in range(4):
            made = program.collective("all_reduce", world, 8_000_000, 200_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def prefetched(ranks: int = 8, steps: int = 6, faults: Faults = ()) -> Job:
    """The next batch is copied beside this one's compute: of 6 ms; at half width (`pcie`) it takes longer than a step."""
    world = Group("0", tuple(range(ranks)))
    copied: dict[int, int] = {}

    def step(program: Program, number: int) -> None:
        times = factor(faults, "pcie", program.rank, number)
        with program.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            program.host(30_000, "collate")
        if number == 0:
            copied[program.rank] = _uploaded(program, times)
        needed = (copied[program.rank],)
        copied[program.rank] = _uploaded(program, times)
        reduced = -1
        for _ in range(16):
            with program.range("aten::linear", "operator", _SHAPES):
                program.host(12_000)
                made = program.kernel("gemm", 500_000, after=needed)
            needed = ()
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults, ends_synced=False)


def _uploaded(program: Program, times: float) -> int:
    with program.range("aten::to", "operator"):
        return program.copy("HtoD", 300_000_000, round(6_000_000 * times), stream=COPY_STREAM)


def causal_ring(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 6) -> Job:
    """Context parallel without balance: under a causal mask the n-th part of a sequence attends to n parts."""
    world = Group("0", tuple(range(ranks)), "cp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(2 * layers):
            layer_of(program, "aten::linear", "gemm", 200_000, 12_000, _SHAPES)
            gathered = program.collective("all_gather", world, 4_000_000, 60_000, after=(program.launched - 1,))
            length = 1024 * (program.rank + 1)
            with program.range("aten::_flash_attention_forward", "operator", f"[[1024, 16, 64], [{length}, 16, 64]]"):
                program.host(12_000)
                made = program.kernel("flash_fwd_kernel", 150_000 * (program.rank + 1), after=(gathered,))
            if layer >= layers:
                reduced = program.collective(
                    "all_reduce", world, 4_000_000, 100_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def staged(stages: int = 4, data: int = 2, steps: int = 4, faults: Faults = (), *, microbatches: int = 8,
           recomputes: tuple[int, ...] = (), frozen: int = 0) -> Job:  # fmt: skip
    """1F1B in replicas; stages that `recompute` run forward again in backward; the first `frozen` stages have no backward."""
    lines = [Group(f"pp{n}", tuple(range(n * stages, (n + 1) * stages)), "pp") for n in range(data)]
    columns = [Group(f"dp{n}", tuple(range(n, stages * data, stages)), "dp") for n in range(stages)]

    def step(program: Program, number: int) -> None:
        line, stage = divmod(program.rank, stages)
        ranks = lines[line].ranks
        load(program, faults, number)
        for place, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, microbatches, 1)):
            if is_forward or stage >= frozen:
                _passed(program, lines[line], stage, is_forward=is_forward, recomputes=stage in recomputes,
                        first=0 if is_forward else frozen, ranks=ranks)  # fmt: skip
            if place == 1:
                strike(program, faults, number)
        last = (program.launched - 1,)
        if stage >= frozen:
            last = (
                program.collective(
                    "all_reduce", columns[stage], 16_000_000, 250_000, stream=COMM_STREAM + 8, after=last
                ),
            )
        optimizer(program, last)

    return job_of(stages * data, steps, step, (*lines, *columns), faults)


def _passed(program: Program, line: Group, stage: int, *, is_forward: bool, recomputes: bool, first: int,
            ranks: tuple[int, ...]) -> None:  # fmt: skip
    source, target = (stage - 1, stage + 1) if is_forward else (stage + 1, stage - 1)
    stream = COMM_STREAM + (0 if is_forward else 2)
    needed: tuple[int, ...] = ()
    if first <= source < len(ranks):
        needed = (program.exchange(line, 1_000_000, 30_000, receives=(ranks[source],), stream=stream),)
    if not is_forward and recomputes:
        with program.range("autograd::engine::evaluate_function: CheckpointFunctionBackward", "operator"):
            program.host(3_000, "CheckpointFunctionBackward")
            with program.range("aten::linear", "operator", _SHAPES, sequence=1):
                program.host(15_000)
                needed = (program.kernel("forward_gemm", 500_000, after=needed),)
    with program.range("aten::linear" if is_forward else "aten::linear_backward", "operator", _SHAPES):
        program.host(15_000)
        done = program.kernel("forward_gemm" if is_forward else "backward_gemm", 500_000 if is_forward else 1_000_000,
                              after=needed, stream=COMPUTE_STREAM)  # fmt: skip
    if first <= target < len(ranks):
        program.exchange(line, 1_000_000, 30_000, sends=(ranks[target],), stream=stream + 1, after=(done,))


def many_scales(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 48) -> Job:
    """Tensor parallel in eight bits: a small all-reduce of the largest value before each product."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            layer_of(program, "aten::amax", "reduce_kernel", 12_000, 6_000)
            largest = program.collective("all_reduce", world, 8, 16_000, after=(program.launched - 1,))
            with program.range("aten::_scaled_mm", "operator", _SHAPES):
                program.host(10_000)
                made = program.kernel("nvjet_qqtst_128x128", 90_000, after=(largest,))
            if layer % 2:
                reduced = program.collective("all_reduce", world, 2_000_000, 35_000, after=(made,))
                program.kernel("residual", 8_000, after=(reduced,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)
