"""Jobs whose ranks each have a part of every sequence: rings, heads, documents."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program, adjacent
from tests.simulator.workloads import SHAPES, WIDE_SHAPES, after_of, job_of, layer_of, noisy_job, optimizer


def ring(ranks: int = 4, steps: int = 5, faults: Faults = (), *, rounds: int = 6, in_lockstep: bool = False) -> Job:
    """Context parallel: blocks of keys go round a ring beside attention.

    `in_lockstep` a block goes on once its attention has ended. The fault `link` slows what a rank sends; with `block`
    a rank's part of the sequence takes so much longer, in kernels of the same length, in every round.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        following, before = (program.rank + 1) % ranks, (program.rank - 1) % ranks
        needed: tuple[int, ...] = ()
        for place in range(rounds):
            slow_ns = (
                max(time_ns(faults, "link", program.rank, number), time_ns(faults, "link", before, number)) // rounds
            )
            ended = (program.launched - 1,) if in_lockstep and place else ()
            sent = program.exchange(world, 4_000_000, 200_000 + slow_ns, sends=(following,), receives=(before,),
                                    after=ended)  # fmt: skip
            with program.range("aten::scaled_dot_product_attention", "operator", SHAPES):
                program.host(15_000)
                for _ in range(1 + time_ns(faults, "block", program.rank, number) // 500_000):
                    program.kernel("flash_fwd", 500_000, after=needed)
            if place == 1:
                strike(program, faults, number)
            needed = (sent,)
        reduced = program.collective("all_reduce", world, 8_000_000, 200_000, stream=COMM_STREAM + 1,
                                     after=(program.launched - 1,))  # fmt: skip
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def causal_ring(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 6) -> Job:
    """Context parallel without balance: under a causal mask the n-th part of a sequence attends to n parts."""
    world = Group("0", tuple(range(ranks)), "cp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(2 * layers):
            layer_of(program, "aten::linear", "gemm", 200_000, 12_000, SHAPES)
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


def keys_and_values(ranks: int = 8, steps: int = 4, faults: Faults = (), *, layers: int = 2,
                    noise: Noise | None = None) -> Job:  # fmt: skip
    """Ring attention: keys and values go round on a stream each, beside attention; zigzag, so that parts are even.

    `long`: a rank's documents are longer (its share of the step); `link`: what the messages over one edge take more.
    """
    world = Group("0", tuple(range(ranks)), "cp")

    def step(program: Program, number: int) -> None:
        own = 2_048 + time_ns(faults, "long", program.rank, number) // (2 * layers * ranks) // 60
        following, before = (program.rank + 1) % ranks, (program.rank - 1) % ranks
        slow_ns = time_ns(faults, "link", program.rank, number) // (2 * layers * (ranks - 1))
        load(program, faults, number)
        made = program.launched - 1
        for layer in range(2 * layers):
            made = after_of(program, "aten::linear", "qkv_gemm", 300_000, (made,))
            held = [made, made]
            if layer == 1:
                strike(program, faults, number)
            for part in range(ranks):
                needed = tuple(held)
                if part < ranks - 1:
                    held = [program.exchange(world, 4_000_000, 70_000 + slow_ns, sends=(following,), receives=(before,),
                                             stream=COMM_STREAM + lane, after=(each,)) for lane, each in enumerate(held)]  # fmt: skip
                made = after_of(program, "aten::_flash_attention_forward", "flash_fwd_kernel", own * 60, needed,
                                14_000, f"[[1, {own}, 16, 128], [1, 2048, 16, 128]]")  # fmt: skip
        made = program.collective("all_reduce", world, 24_000_000, 450_000, stream=COMM_STREAM + 3, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def documents(parts: int = 2, data: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 6,
              noise: Noise | None = None) -> Job:  # fmt: skip
    """Sequences in parts, gathered for attention in each layer; gradients over all. `long`: a document is longer, on all its ranks."""
    rows = adjacent("cp", parts, data)
    world = Group("w", tuple(range(parts * data)), "dp")

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // parts]
        more_ns = time_ns(faults, "long", program.rank, number) // (2 * layers)
        length = 4096 + more_ns // 100
        load(program, faults, number)
        for layer in range(2 * layers):
            made = layer_of(program, "aten::linear", "gemm", 250_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective("all_gather", row, 2_000_000, 60_000, after=(made,))
            made = after_of(program, "aten::_flash_attention_forward", "flash_fwd_kernel", 200_000 + more_ns, (made,),
                            shapes=f"[[1, {length}, 16, 128]]")  # fmt: skip
            if layer >= layers:
                made = program.collective(
                    "all_reduce", world, 9_000_000, 200_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return noisy_job(parts * data, steps, step, (*rows, world), faults, noise)
