"""Pipelines side by side whose stages reduce their gradients with each other."""

from collections.abc import Sequence

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import (
    SHAPES,
    job_of,
    linear_after,
    microbatch,
    one_forward_one_backward,
    optimizer,
)


def pp_dp(
    stages: int = 3,
    data: int = 2,
    steps: int = 4,
    faults: Faults = (),
    *,
    microbatches: int = 6,
    heavy: tuple[int, float] = (0, 1.0),
) -> Job:
    """Pipelines side by side whose stages reduce their gradients with each other; one stage may be heavy, by a factor."""
    lines = adjacent("pp", stages, data)
    across = strided("dp", data, stages)

    def step(program: Program, number: int) -> None:
        line, stage = divmod(program.rank, stages)
        load(program, faults, number)
        for place, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, microbatches, 1)):
            forward_ns = round(500_000 * (heavy[1] if stage == heavy[0] else 1))
            microbatch(program, lines[line], stage, stages, forward_ns, is_forward=is_forward)
            if place == 1:
                strike(program, faults, number)
        reduced = program.collective("all_reduce", across[stage], 8_000_000, 400_000, stream=COMM_STREAM + 8,
                                     after=(program.launched - 2,))  # fmt: skip
        optimizer(program, (reduced,))

    return job_of(stages * data, steps, step, (*lines, *across), faults)


def unlike_stages(stages: int = 4, data: int = 2, steps: int = 4, faults: Faults = (), *, microbatches: int = 8,
           recomputes: tuple[int, ...] = (), frozen: int = 0) -> Job:  # fmt: skip
    """1F1B in replicas; stages that `recompute` run forward again in backward; the first `frozen` stages have no backward."""
    lines = adjacent("pp", stages, data)
    columns = strided("dp", data, stages)

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
            with program.range("aten::linear", "operator", SHAPES, sequence=1):
                program.host(15_000)
                needed = (program.kernel("forward_gemm", 500_000, after=needed),)
    with program.range("aten::linear" if is_forward else "aten::linear_backward", "operator", SHAPES):
        program.host(15_000)
        done = program.kernel("forward_gemm" if is_forward else "backward_gemm", 500_000 if is_forward else 1_000_000,
                              after=needed, stream=COMPUTE_STREAM)  # fmt: skip
    if first <= target < len(ranks):
        program.exchange(line, 1_000_000, 30_000, sends=(ranks[target],), stream=stream + 1, after=(done,))


def edged(stages: int = 4, microbatches: int = 8, steps: int = 4, faults: Faults = (), *, edges: Sequence[int] = (1,),
          message_ns: int = 200_000, elements: int = 20_000_000) -> Job:  # fmt: skip
    """1F1B whose messages between one stage and the next of `edges` take longer (`link`, of both ranks), both ways."""
    world = Group("0", tuple(range(stages)))

    def message(program: Program, number: int, peer: int, stream: int, *, is_sent: bool, after: tuple[int, ...]) -> int:
        is_edge = min(program.rank, peer) in edges
        ns = message_ns + is_edge * (time_ns(faults, "link", program.rank, number) // (2 * microbatches))
        peers = {"sends": (peer,)} if is_sent else {"receives": (peer,)}
        return program.exchange(world, elements, ns, stream=stream, after=after, **peers)

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for is_forward, _ in one_forward_one_backward(program.rank, stages, microbatches, 1):
            way = 1 if is_forward else -1
            stream, needed = COMM_STREAM + (0 if is_forward else 2), ()
            if 0 <= program.rank - way < stages:
                needed = (message(program, number, program.rank - way, stream, is_sent=False, after=()),)
            made = linear_after(
                program, f"{'for' if is_forward else 'back'}ward_gemm", 500_000 * (3 - way) // 2, needed
            )
            if 0 <= program.rank + way < stages:
                message(program, number, program.rank + way, stream + 1, is_sent=True, after=(made,))
        optimizer(program, ())

    return job_of(stages, steps, step, (world,), faults)
