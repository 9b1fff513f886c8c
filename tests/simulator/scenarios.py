"""Jobs as people run them: data parallel, hybrid sharded, pipelined."""

from collections.abc import Mapping

from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent, strided

_NONE: Mapping[int, int] = {}


def ddp(ranks: int = 2, steps: int = 4, buckets: int = 8, *, slow_compute_ns: Mapping[int, int] = _NONE,
        slow_host_ns: Mapping[int, int] = _NONE, in_turn_ns: int = 0, elements: int = 4_000_000, seed: int = 0,
        is_synced: bool = True) -> Job:  # fmt: skip
    """Data parallel: a bucket's gradients are reduced while the next are computed.

    `slow_compute_ns` and `slow_host_ns` are what a rank needs more, a bucket; `in_turn_ns` what one rank needs more in
    a step, each in its turn, as on samples of uneven length.
    """
    world = Group("0", tuple(range(ranks)))
    programs = []
    for rank in range(ranks):
        program = Program(rank)
        for step in range(steps):
            with program.range(f"ProfilerStep#{step}"):
                with program.range("forward"):
                    longer_ns = in_turn_ns // buckets if step % ranks == rank else 0
                    _layers(program, "forward_gemm", buckets, 200_000 + longer_ns)
                with program.range("backward"):
                    last = _reduced_buckets(program, world, [elements] * buckets, slow_compute_ns.get(rank, 0),
                                            slow_host_ns.get(rank, 0))  # fmt: skip
                with program.range("optimizer"):
                    program.kernel("adam", 300_000, after=(last,))
                if is_synced:
                    program.sync()
        programs.append(program)
    return Job(tuple(programs), (world,), seed)


def fed(ranks: int = 4, steps: int = 4, *, slow_data_ns: Mapping[int, int] = _NONE, slow_copy_ns: Mapping[int, int] = _NONE,
        slow_in: range = range(99)) -> Job:  # fmt: skip
    """Data parallel with a batch that is loaded, copied and used; in the steps `slow_in` some ranks are slower at it."""
    world = Group("0", tuple(range(ranks)))
    programs = []
    for rank in range(ranks):
        program = Program(rank)
        for step in range(steps):
            data_ns, copy_ns = (
                (extra.get(rank, 0) if step in slow_in else 0) for extra in (slow_data_ns, slow_copy_ns)
            )
            with program.range(f"ProfilerStep#{step}"):
                with program.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                    program.host(20_000 + data_ns, "collate")
                program.copy("HtoD", 1 << 20, 50_000 + copy_ns, stream=COMPUTE_STREAM)
                with program.range("forward"):
                    _layers(program, "forward_gemm", 8, 200_000)
                with program.range("backward"):
                    last = _reduced_buckets(program, world, [4_000_000] * 8, 0, 0)
                program.kernel("adam", 300_000, after=(last,))
                program.sync()
        programs.append(program)
    return Job(tuple(programs), (world,))


def _layers(program: Program, name: str, layers: int, ns: int) -> None:
    for _ in range(layers):
        program.host(20_000, "aten::linear")
        program.kernel(name, ns)


def _reduced_buckets(
    program: Program, world: Group, buckets: list[int], slow_compute_ns: int, slow_host_ns: int
) -> int:
    last = -1
    for bucket, elements in enumerate(buckets):
        program.host(20_000, "aten::linear_backward")
        if slow_host_ns:
            program.host(slow_host_ns, "python_hook")
        gradient = program.kernel("backward_gemm", 400_000)
        if slow_compute_ns:
            gradient = program.kernel("extra_gemm", slow_compute_ns)
        # The first bucket is larger, as in real jobs: sizes tell where a step begins.
        last = program.collective(
            "all_reduce", world, elements if bucket else elements * 3 // 2, 150_000 if bucket else 220_000,
            after=(gradient,),
        )  # fmt: skip
    return last


def hsdp(shard: int = 4, replicate: int = 2, steps: int = 4, layers: int = 4, *,
         slow_compute_ns: Mapping[int, int] = _NONE, seed: int = 0) -> Job:  # fmt: skip
    """Hybrid sharding: parameters gathered and gradients scattered in a row of the mesh, reduced along its columns."""
    rows = adjacent("shard", shard, replicate)
    columns = strided("replicate", replicate, shard)  # fmt: skip
    programs = []
    for rank in range(shard * replicate):
        program = Program(rank)
        for step in range(steps):
            with program.range(f"ProfilerStep#{step}"):
                _hsdp_step(program, rows[rank // shard], columns[rank % shard], layers, slow_compute_ns.get(rank, 0))
                program.sync()
        programs.append(program)
    return Job(tuple(programs), (*rows, *columns), seed)


def _hsdp_step(program: Program, row: Group, column: Group, layers: int, slow_ns: int) -> None:
    for _ in range(layers):
        program.host(10_000)
        gathered = program.collective("all_gather", row, 8_000_000, 60_000)
        program.kernel("forward_gemm", 150_000 + slow_ns, after=(gathered,))
    reduced = []
    for _ in range(layers):
        program.host(10_000)
        gathered = program.collective("all_gather", row, 8_000_000, 60_000)
        gradient = program.kernel("backward_gemm", 300_000 + slow_ns, after=(gathered,))
        scattered = program.collective(
            "reduce_scatter", row, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(gradient,)
        )
        reduced.append(
            program.collective("all_reduce", column, 2_000_000, 50_000, stream=COMM_STREAM + 2, after=(scattered,))
        )
    program.kernel("adam", 100_000, after=tuple(reduced))


def pipeline(stages: int = 4, microbatches: int = 4, steps: int = 4, *, forward_ns: int = 500_000,
             slow_compute_ns: Mapping[int, int] = _NONE, seed: int = 0) -> Job:  # fmt: skip
    """GPipe: all forwards, then all backwards; activations and gradients are sent between stages."""
    world = Group("0", tuple(range(stages)))
    programs = []
    for stage in range(stages):
        program = Program(stage)
        extra = slow_compute_ns.get(stage, 0)
        for step in range(steps):
            with program.range(f"ProfilerStep#{step}"):
                for _ in range(microbatches):
                    _microbatch(program, world, stage - 1, stage + 1, "forward_gemm", forward_ns + extra)
                for _ in range(microbatches):
                    _microbatch(program, world, stage + 1, stage - 1, "backward_gemm", 2 * (forward_ns + extra))
                program.kernel("adam", 100_000)
                program.sync()
        programs.append(program)
    return Job(tuple(programs), (world,), seed)


def _microbatch(program: Program, world: Group, source: int, target: int, name: str, ns: int) -> None:
    needed: tuple[int, ...] = ()
    if source in world.ranks:
        needed = (program.exchange(world, 1_000_000, 30_000, receives=(source,)),)
    done = program.kernel(name, ns, after=needed, stream=COMPUTE_STREAM)
    if target in world.ranks:
        program.exchange(world, 1_000_000, 30_000, sends=(target,), after=(done,))
