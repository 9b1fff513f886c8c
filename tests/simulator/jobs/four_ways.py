"""Four kinds of groups at once, and gradients that are waited for a step later."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import (
    WIDE_BACK_SHAPES,
    WIDE_SHAPES,
    after_of,
    layer_of,
    noisy_job,
    one_forward_one_backward,
    optimizer,
)


def four_ways(steps: int = 4, faults: Faults = (), *, micro: int = 4, noise: Noise | None = None) -> Job:
    """Tensor 2 x data 4, sharded, experts in pairs of it, x stages 2; rank t + 2 · (d + 4 · s).

    `tokens`: a rank's experts take longer; `wire`: its expert group's exchanges do.
    """

    def numbered(t: int, d: int, s: int) -> int:
        return t + 2 * (d + 4 * s)

    rows = {
        (d, s): Group(f"tp{d}.{s}", (numbered(0, d, s), numbered(1, d, s)), "tp") for d in range(4) for s in range(2)
    }
    shards = {(t, s): Group(f"fsdp{t}.{s}", tuple(numbered(t, d, s) for d in range(4)), "fsdp")
              for t in range(2) for s in range(2)}  # fmt: skip
    experts = {(t, e, s): Group(f"ep{t}.{e}.{s}", (numbered(t, 2 * e, s), numbered(t, 2 * e + 1, s)), "ep")
               for t in range(2) for e in range(2) for s in range(2)}  # fmt: skip
    lines = {
        (t, d): Group(f"pp{t}.{d}", (numbered(t, d, 0), numbered(t, d, 1)), "pp") for t in range(2) for d in range(4)
    }

    def step(program: Program, number: int) -> None:
        t, d, s = program.rank % 2, program.rank // 2 % 4, program.rank // 8
        line, other = lines[t, d], numbered(t, d, 1 - s)
        more_ns = time_ns(faults, "tokens", program.rank, number) // (3 * micro)
        wire_ns = time_ns(faults, "wire", program.rank, number) // (4 * micro)
        load(program, faults, number)
        for at, (is_forward, _) in enumerate(one_forward_one_backward(s, 2, micro, 1)):
            stream, times = COMM_STREAM + (0 if is_forward else 2), 1 if is_forward else 2
            gets, gives = (s, not s) if is_forward else (not s, s)
            got = program.collective("all_gather", shards[t, s], 6_000_000, 60_000, stream=COMM_STREAM + 6)
            needed = (got,)
            if gets:
                needed = (got, program.exchange(line, 1_000_000, 40_000, receives=(other,), stream=stream))
            made = after_of(program, "aten::linear", "dense_gemm", 300_000 * times, needed)
            made = program.collective(
                "all_reduce", rows[d, s], 1_000_000, 40_000, stream=COMM_STREAM + 5, after=(made,)
            )
            sent = program.collective("all_to_all", experts[t, d // 2, s], 1_000_000, 50_000 + wire_ns,
                                      stream=COMM_STREAM + 7, after=(made,))  # fmt: skip
            made = after_of(program, "aten::_grouped_mm", "expert_gemm", (200_000 + more_ns) * times, (sent,))
            if at == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective("all_to_all", experts[t, d // 2, s], 1_000_000, 50_000 + wire_ns,
                                      stream=COMM_STREAM + 7, after=(made,))  # fmt: skip
            if gives:
                program.exchange(line, 1_000_000, 40_000, sends=(other,), stream=stream + 1, after=(made,))
        made = program.collective(
            "reduce_scatter", shards[t, s], 12_000_000, 200_000, stream=COMM_STREAM + 6, after=(made,)
        )
        optimizer(program, (made,))

    groups = (*rows.values(), *shards.values(), *experts.values(), *lines.values())
    return noisy_job(16, steps, step, groups, faults, noise)


def a_step_late(
    ranks: int = 4, steps: int = 8, faults: Faults = (), *, layers: int = 8, noise: Noise | None = None
) -> Job:
    """Gradients are reduced without waiting; the optimizer takes those of the step before. Hosts are two steps ahead at most."""
    world = Group("0", tuple(range(ranks)))
    before: dict[int, list[int]] = {rank: [] for rank in range(ranks)}

    def step(program: Program, number: int) -> None:
        own = before[program.rank]
        load(program, faults, number)
        for layer in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 300_000, 14_000)
            if layer == 1:
                strike(program, faults, number)
        made = -1
        for _ in range(layers):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 600_000, 14_000, WIDE_BACK_SHAPES)
        optimizer(program, tuple(own[-1:]))
        if len(own) > 1:
            program.sync("cudaEventSynchronize", after=(own[-2],))
        own.append(program.collective("all_reduce", world, 60_000_000, 1_500_000, after=(made,)))

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def begun_apart(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, apart_ns: int = 30_000_000, noise: Noise | None = None
) -> Job:
    """Each rank sets up for longer than the one before, while it is recorded; then all train, sharded."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        if not number:
            program.host(apart_ns * program.rank, "train.py(12): build_index", "frame")
        load(program, faults, number)
        for layer in range(16):
            got = program.collective("all_gather", world, 8_000_000, 60_000)
            made = after_of(program, "aten::linear", "gemm", 400_000, (got,), 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
            if layer >= 8:
                made = program.collective(
                    "reduce_scatter", world, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
