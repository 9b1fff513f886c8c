"""Unlike models in one job: a large and a small one, one learner of several actors, an encoder before a decoder, slow ends."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import (
    TOKEN_SHAPES,
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


def one_learner(
    actors: int = 3, steps: int = 5, faults: Faults = (), *, learn_ns: int = 400_000, noise: Noise | None = None
) -> Job:
    """Rank 0 learns from what the others play; samples are gathered, weights broadcast. `env`: an actor's games are slower."""
    world = Group("0", tuple(range(actors + 1)))

    def step(program: Program, number: int) -> None:
        if program.rank:
            env_ns = 120_000 + time_ns(faults, "env", program.rank, number) // 20
            with program.range("play"):
                for _ in range(20):
                    layer_of(program, "aten::mm", "policy_gemm", 60_000, 12_000, TOKEN_SHAPES)
                    program.sync("cudaStreamSynchronize")
                    program.host(env_ns, "games.py(60): step", "frame")
            strike(program, faults, number)
        made = layer_of(program, "aten::cat", "cat_kernel", 15_000, 10_000, TOKEN_SHAPES)
        got = program.collective("all_gather", world, 2_000_000, 60_000, after=(made,))
        if not program.rank:
            for layer in range(10):
                made = after_of(program, "aten::linear", "learn_gemm", learn_ns, (got,) if not layer else ())
                if layer == 1:
                    strike(program, faults, number)
            optimizer(program, (made,))
            got = program.launched - 1
        program.collective("broadcast", world, 12_000_000, 150_000, after=(got,))

    return noisy_job(actors + 1, steps, step, (world,), faults, noise)


def speech(data: int = 2, steps: int = 4, faults: Faults = (), *, micro: int = 6, encoder_ns: int = 450_000,
           noise: Noise | None = None) -> Job:  # fmt: skip
    """Pipelines of two stages, an encoder of convolutions and a decoder in tensor parallel, each on two GPUs.

    Ranks are numbered within a replica: encoder 0 and 1, decoder 2 and 3. `tplink`: a decoder's pair exchanges longer.
    """
    pairs = adjacent("tp", 2, 2 * data)
    columns = strided("dp", data, 4)
    lines = {rank: Group(f"pp{rank}", (rank, rank + 2), "pp") for d in range(data) for rank in (4 * d, 4 * d + 1)}

    def step(program: Program, number: int) -> None:
        place = program.rank % 4 // 2
        other, line = program.rank + 2 - 4 * place, lines[program.rank - 2 * place]
        more_ns = time_ns(faults, "tplink", program.rank, number) // (2 * micro)
        load(program, faults, number)
        for at, (is_forward, _) in enumerate(one_forward_one_backward(place, 2, micro, 1)):
            stream, times = COMM_STREAM + (0 if is_forward else 2), 1 if is_forward else 2
            needed: tuple[int, ...] = ()
            if is_forward is bool(place):
                needed = (program.exchange(line, 1_500_000, 40_000, receives=(other,), stream=stream),)
            operator, kernel, ns = (
                ("aten::linear", "decoder_gemm", 500_000) if place else ("aten::conv1d", "conformer_conv", encoder_ns)
            )
            made = after_of(program, operator, kernel, ns * times, needed)
            made = program.collective("all_reduce", pairs[program.rank // 2], 1_000_000, 40_000 + more_ns,
                                      stream=COMM_STREAM + 5, after=(made,))  # fmt: skip
            made = after_of(program, "aten::layer_norm", "layer_norm", 20_000, (made,))
            if at == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if is_forward is not bool(place):
                program.exchange(line, 1_500_000, 40_000, sends=(other,), stream=stream + 1, after=(made,))
        made = program.collective(
            "all_reduce", columns[program.rank % 4], 10_000_000, 200_000, stream=COMM_STREAM + 6, after=(made,)
        )
        optimizer(program, (made,))

    return noisy_job(4 * data, steps, step, (*pairs, *columns, *lines.values()), faults, noise)


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
