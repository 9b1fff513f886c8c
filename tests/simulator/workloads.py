"""Jobs as people run them, with faults: data parallel, sharded, tensor and expert parallel, pipelined, offloaded."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from tests.simulator.faults import Faults, load, strike, throttled
from tests.simulator.noise import Noise, noisy
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program, adjacent, strided

JITTER = 0.004

SHAPES, WIDE_SHAPES = "[[4096, 768], [768, 768]]", "[[4096, 2048], [2048, 2048]]"
WIDE_BACK_SHAPES, TOKEN_SHAPES = "[[4096, 2048], [4096, 2048]]", "[[8, 4096], [4096, 4096]]"
"""Of products: forward, backward, and of the tokens that are decoded."""


def ddp(ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 8, host_ns: int = 20_000,
        own_host_ns: Sequence[int] = (), has_steps: bool = True, is_synced: bool = True, jitter: float = JITTER) -> Job:  # fmt: skip
    """Data parallel: buckets are reduced while the next gradients are computed; `own_host_ns` a layer, by rank."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        layer_ns = own_host_ns[program.rank] if own_host_ns else host_ns
        load(program, faults, number)
        with program.range("forward"):
            for layer in range(layers):
                layer_of(program, "aten::linear", "forward_gemm", 200_000, layer_ns)
                if layer == 1:
                    strike(program, faults, number)
        with program.range("backward"):
            reduced = -1
            for _ in range(layers):
                gradient = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000, layer_ns)
                reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(gradient,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults, has_steps=has_steps, ends_synced=is_synced, jitter=jitter)


def fsdp(ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 6, is_synced: bool = True) -> Job:
    """Fully sharded: parameters gathered a layer ahead in forward and backward, gradients scattered."""
    world = Group("0", tuple(range(ranks)))
    return _sharded(ranks, steps, faults, layers, lambda _: world, None, (world,),
                    is_synced=is_synced)  # fmt: skip


def hsdp(shard: int = 4, replicate: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 4) -> Job:
    """Hybrid sharding: gathered and scattered in a row of the mesh, reduced along its columns."""
    rows, columns = adjacent("shard", shard, replicate), strided("replicate", replicate, shard)
    return _sharded(shard * replicate, steps, faults, layers, lambda rank: rows[rank // shard],
                    lambda rank: columns[rank % shard], (*rows, *columns))  # fmt: skip


def tp_dp(tensor: int = 4, data: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 4) -> Job:
    """Tensor parallel groups that reduce after every layer, data parallel across them."""
    rows, columns = adjacent("tp", tensor, data), strided("dp", data, tensor)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(2 * layers):
            name = "forward_gemm" if layer < layers else "backward_gemm"
            with program.range("aten::mm", "operator", SHAPES):
                program.host(15_000)
                part = program.kernel(name, 250_000, after=needed)
            if layer == 1:
                strike(program, faults, number)
                part = max(part, program.launched - 1)
            needed = (program.collective("all_reduce", row, 2_000_000, 40_000, after=(part,)),)
        reduced = program.collective("all_reduce", column, 16_000_000, 200_000, stream=COMM_STREAM + 1, after=needed)
        optimizer(program, (reduced,))

    return job_of(tensor * data, steps, step, (*rows, *columns), faults)


def ep_dp(expert: int = 4, data: int = 2, steps: int = 5, faults: Faults = (), *, layers: int = 3) -> Job:
    """Experts exchanged in groups within data parallelism: dispatch, experts, combine; gradients over all ranks."""
    rows = adjacent("ep", expert, data)
    world = Group("world", tuple(range(expert * data)))

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // expert]
        load(program, faults, number)
        for layer in range(2 * layers):
            before = layer_of(program, "aten::linear", "dense_gemm", 200_000, 15_000)
            sent = program.collective("all_to_all", row, 1_000_000, 60_000, after=(before,))
            with program.range("aten::_grouped_mm", "operator", SHAPES):
                program.host(15_000)
                done = program.kernel("expert_gemm", 300_000, after=(sent,))
            if layer == 1:
                strike(program, faults, number)
                done = max(done, program.launched - 1)
            back = program.collective("all_to_all", row, 1_000_000, 60_000, after=(done,))
            program.kernel("combine", 30_000, after=(back,))
        reduced = program.collective("all_reduce", world, 16_000_000, 300_000, stream=COMM_STREAM + 1,
                                     after=(program.launched - 1,))  # fmt: skip
        optimizer(program, (reduced,))

    return job_of(expert * data, steps, step, (*rows, world), faults)


def pipelined(stages: int = 4, microbatches: int = 8, steps: int = 4, faults: Faults = (), *,
              stage_ns: Sequence[int] = (), chunks: int = 1) -> Job:  # fmt: skip
    """1F1B, interleaved with several chunks a rank; `stage_ns` is each rank's forward of a microbatch: wider where it is longer.

    A chunk's activation goes to the next rank; from the last rank to the first one's next chunk.
    """
    world = Group("0", tuple(range(stages)))
    each_ns = list(stage_ns) or [500_000] * stages

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for place, (is_forward, chunk) in enumerate(
            one_forward_one_backward(program.rank, stages, microbatches, chunks)
        ):
            microbatch(program, world, chunk * stages + program.rank, stages * chunks, each_ns[program.rank] // chunks,
                        is_forward=is_forward, shapes=wider(each_ns, program.rank))  # fmt: skip
            if place == 1:
                strike(program, faults, number)
        optimizer(program, ())

    return job_of(stages, steps, step, (world,), faults)


def wider(stage_ns: Sequence[int], stage: int) -> str:
    """Sizes of a stage's products: as the lightest stage's, and wider by what it takes longer: its GPU is no slower."""
    return f"[[4096, 768], [768, {768 * stage_ns[stage] // min(stage_ns)}]]"


def offload(
    ranks: int = 2, steps: int = 4, faults: Faults = (), *, layers: int = 4, optimizer_ns: int = 20_000_000
) -> Job:
    """FSDP whose gradients go to the host, where the optimizer runs; parameters come back in the next step."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(2 * layers):
            up = program.copy("HtoD", 8 << 20, 200_000)
            gathered = program.collective("all_gather", world, 8_000_000, 60_000, after=(up,))
            with program.range("aten::linear", "operator", SHAPES):
                program.host(15_000)
                done = program.kernel("forward_gemm" if layer < layers else "backward_gemm", 300_000, after=(gathered,))
            if layer == 1:
                strike(program, faults, number)
            if layer >= layers:
                scattered = program.collective("reduce_scatter", world, 8_000_000, 80_000, stream=COMM_STREAM + 1,
                                               after=(done,))  # fmt: skip
                program.copy("DtoH", 8 << 20, 200_000, stream=COPY_STREAM + 1, after=(scattered,))
        program.sync("cudaEventSynchronize", after=(program.launched - 1,))
        with program.range("Optimizer.step#AdamW.step"):
            program.host(optimizer_ns, "aten::_fused_adamw_")

    return job_of(ranks, steps, step, (world,), faults, ends_synced=False)


def job_of(ranks: int, steps: int, step: Callable[[Program, int], None], groups: tuple[Group, ...],
           faults: Faults = (), *, has_steps: bool = True, ends_synced: bool = True, jitter: float = JITTER) -> Job:  # fmt: skip
    """The same steps on every rank, its GPU throttled where a fault says so; hosts may run ahead of unsynced steps."""
    programs = []
    for rank in range(ranks):
        program = Program(rank)
        for number in range(steps):
            begin = len(program.instructions)
            with program.range(f"ProfilerStep#{number}") if has_steps else nullcontext():
                step(program, number)
                if ends_synced:
                    program.sync()
            throttled(program, begin, faults, number)
        programs.append(program)
    return Job(tuple(programs), groups, jitter=jitter, end_jitter_ns=2_000)


def noisy_job(ranks: int, steps: int, step: Callable[[Program, int], None], groups: tuple[Group, ...], faults: Faults,
              noise: Noise | None, *, ends_synced: bool = True) -> Job:  # fmt: skip
    """The same with noise."""
    return noisy(job_of(ranks, steps, step, groups, faults, ends_synced=ends_synced), noise or Noise(), faults)


def layer_of(program: Program, operator: str, kernel: str, ns: int, host_ns: int, shapes: str = SHAPES) -> int:
    """An operator of one kernel."""
    return after_of(program, operator, kernel, ns, (), host_ns, shapes)


def after_of(program: Program, operator: str, kernel: str, ns: int, after: tuple[int, ...], host_ns: int = 14_000,
             shapes: str = WIDE_SHAPES) -> int:  # fmt: skip
    """An operator of one kernel that waits for others."""
    with program.range(operator, "operator", shapes):
        program.host(host_ns)
        return program.kernel(kernel, ns, after=after)


def linear_after(program: Program, kernel: str, ns: int, after: tuple[int, ...]) -> int:
    """A product whose kernel waits for others."""
    return after_of(program, "aten::linear", kernel, ns, after, 15_000, SHAPES)


def optimizer(program: Program, after: tuple[int, ...]) -> None:
    """The optimizer's one kernel."""
    with program.range("Optimizer.step#AdamW.step"), program.range("aten::_fused_adamw_", "operator"):
        program.host(10_000)
        program.kernel("adam", 100_000, after=after)


def _sharded(ranks: int, steps: int, faults: Faults, layers: int, row_of: Callable[[int], Group],
             column_of: Callable[[int], Group] | None, groups: tuple[Group, ...], *, is_synced: bool = True) -> Job:  # fmt: skip
    def step(program: Program, number: int) -> None:
        row = row_of(program.rank)
        load(program, faults, number)
        for layer in range(layers):
            program.host(10_000)
            gathered = program.collective("all_gather", row, 8_000_000, 60_000)
            with program.range("aten::linear", "operator", SHAPES):
                program.kernel("forward_gemm", 250_000, after=(gathered,))
            if layer == 1:
                strike(program, faults, number)
        reduced = []
        for _ in range(layers):
            program.host(10_000)
            gathered = program.collective("all_gather", row, 8_000_000, 60_000)
            with program.range("aten::linear_backward", "operator", SHAPES):
                gradient = program.kernel("backward_gemm", 500_000, after=(gathered,))
            last = program.collective(
                "reduce_scatter", row, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(gradient,)
            )
            if column_of:
                last = program.collective("all_reduce", column_of(program.rank), 2_000_000, 50_000,
                                          stream=COMM_STREAM + 2, after=(last,))  # fmt: skip
            reduced.append(last)
        optimizer(program, tuple(reduced))

    return job_of(ranks, steps, step, groups, faults, ends_synced=is_synced)


def one_forward_one_backward(rank: int, stages: int, microbatches: int, chunks: int) -> list[tuple[bool, int]]:
    """Whether forward, and of which chunk, in order; Megatron's schedule of chunks in groups of `stages`."""
    total = microbatches * chunks
    warm = min(stages - rank - 1 if chunks == 1 else (stages - rank - 1) * 2 + (chunks - 1) * stages, total)
    forward = [(True, _chunk(number, stages, chunks)) for number in range(total)]
    backward = [(False, chunks - 1 - _chunk(number, stages, chunks)) for number in range(total)]
    steady = [each for pair in zip(forward[warm:], backward, strict=False) for each in pair]
    return [*forward[:warm], *steady, *backward[total - warm :]]


def _chunk(number: int, stages: int, chunks: int) -> int:
    return number % (stages * chunks) // stages


def microbatch(program: Program, world: Group, stage: int, last: int, forward_ns: int, *, is_forward: bool,
               shapes: str = SHAPES) -> None:  # fmt: skip
    ranks = len(world.ranks)
    source, target = (stage - 1, stage + 1) if is_forward else (stage + 1, stage - 1)
    # Each direction has a stream of its own, or two neighbours' messages would block each other.
    needed: tuple[int, ...] = ()
    stream = COMM_STREAM + (0 if is_forward else 2)
    if 0 <= source < last:
        needed = (program.exchange(world, 1_000_000, 30_000, receives=(world.ranks[source % ranks],), stream=stream),)
    with program.range("aten::linear" if is_forward else "aten::linear_backward", "operator", shapes):
        program.host(15_000)
        name, ns = ("forward_gemm", forward_ns) if is_forward else ("backward_gemm", 2 * forward_ns)
        done = program.kernel(name, ns, after=needed, stream=COMPUTE_STREAM)
    if 0 <= target < last:
        program.exchange(
            world, 1_000_000, 30_000, sends=(world.ranks[target % ranks],), stream=stream + 1, after=(done,)
        )
