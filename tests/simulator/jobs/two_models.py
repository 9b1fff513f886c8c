"""Unlike models in one job: a large and a small one, one learner of several actors, an encoder before a decoder, slow ends."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import (
    WIDE_BACK_SHAPES,
    WIDE_SHAPES,
    after_of,
    layer_of,
    noisy_job,
    one_forward_one_backward,
    optimizer,
)


def two_sizes(each: int = 4, steps: int = 5, faults: Faults = (), *, large_ns: int = 350_000, small_ns: int = 220_000,
              noise: Noise | None = None) -> Job:  # fmt: skip
    """The first half trains a large model, the other a small one, on each other's logits, which all gather after forward."""
    world = Group("0", tuple(range(2 * each)))
    halves = adjacent("model", each, 2, "dp")

    def step(program: Program, number: int) -> None:
        half = program.rank // each
        name, ns = (("large", large_ns), ("small", small_ns))[half]
        load(program, faults, number)
        for layer in range(8):
            made = layer_of(program, "aten::linear", f"{name}_gemm", ns, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        got = program.collective("all_gather", world, 2_000_000, 60_000, after=(made,))
        for layer in range(8):
            needed = (got,) if not layer else ()
            made = after_of(program, "AddmmBackward0", f"{name}_backward", 2 * ns, needed, 14_000, WIDE_BACK_SHAPES)
            made = program.collective(
                "all_reduce", halves[half], 5_000_000, 120_000, stream=COMM_STREAM + 1, after=(made,)
            )
        optimizer(program, (made,))

    return noisy_job(2 * each, steps, step, (world, *halves), faults, noise)


def slow_ends(
    stages: int = 4, data: int = 2, steps: int = 4, faults: Faults = (), *, micro: int = 8, noise: Noise | None = None
) -> Job:
    """Pipelines side by side. `edge`: what the messages of a rank with the one before it take longer."""
    lines, columns = adjacent("pp", stages, data), strided("dp", data, stages)

    def step(program: Program, number: int) -> None:
        d, s = divmod(program.rank, stages)
        edges = [time_ns(faults, "edge", program.rank + more, number) // (2 * micro) for more in (0, 1)]
        load(program, faults, number)
        for at, (is_forward, _) in enumerate(one_forward_one_backward(s, stages, micro, 1)):
            way, stream = 1 if is_forward else -1, COMM_STREAM + (0 if is_forward else 2)
            needed: tuple[int, ...] = ()
            if 0 <= s - way < stages:
                ns = 40_000 + edges[0 if is_forward else 1]
                needed = (program.exchange(lines[d], 2_000_000, ns, receives=(program.rank - way,), stream=stream),)
            made = after_of(program, "aten::linear", "stage_gemm", 400_000 if is_forward else 800_000, needed)
            if at == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if 0 <= s + way < stages:
                ns = 40_000 + edges[1 if is_forward else 0]
                program.exchange(lines[d], 2_000_000, ns, sends=(program.rank + way,), stream=stream + 1, after=(made,))
        made = program.collective("all_reduce", columns[s], 10_000_000, 200_000, stream=COMM_STREAM + 6, after=(made,))
        optimizer(program, (made,))

    return noisy_job(stages * data, steps, step, (*lines, *columns), faults, noise)
