"""Layouts of several kinds of groups, further ones: tied embeddings, heads and rings, shared experts, vocabularies, streams."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import (
    WIDE_BACK_SHAPES,
    WIDE_SHAPES,
    after_of,
    layer_of,
    noisy_job,
    one_forward_one_backward,
    optimizer,
)


def tied(stages: int = 4, data: int = 2, steps: int = 4, faults: Faults = (), *, micros: tuple[int, ...] = (8,),
         noise: Noise | None = None) -> Job:  # fmt: skip
    """1F1B of so many micro-batches by step; first and last stages reduce the embedding they share. `tied`: that takes longer."""
    lines, rows = strided("pp", stages, data), adjacent("dp", data, stages)
    ends = [Group(f"emb{k}", (line.ranks[0], line.ranks[-1]), "embedding") for k, line in enumerate(lines)]

    def step(program: Program, number: int) -> None:
        stage, place = divmod(program.rank, data)
        line = lines[place]
        if stage in (0, stages - 1):
            load(program, faults, number)
        for at, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, micros[number % len(micros)], 1)):
            way, stream, needed = 1 if is_forward else -1, COMM_STREAM + (0 if is_forward else 2), ()
            if 0 <= stage - way < stages:
                needed = (
                    program.exchange(line, 4_000_000, 45_000, receives=(line.ranks[stage - way],), stream=stream),
                )
            for part in range(3):
                made = after_of(program, "aten::linear" if is_forward else "AddmmBackward0",
                                "forward_gemm" if is_forward else "backward_gemm", 150_000 if is_forward else 300_000,
                                () if part else needed, 11_000, WIDE_SHAPES if is_forward else WIDE_BACK_SHAPES)  # fmt: skip
            if at == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if 0 <= stage + way < stages:
                program.exchange(line, 4_000_000, 45_000, sends=(line.ranks[stage + way],), stream=stream + 1,
                                 after=(made,))  # fmt: skip
        if stage in (0, stages - 1):
            slow_ns = time_ns(faults, "tied", program.rank, number)
            made = program.collective(
                "all_reduce", ends[place], 30_000_000, 400_000 + slow_ns, stream=COMM_STREAM + 5, after=(made,)
            )
        made = program.collective("all_reduce", rows[stage], 20_000_000, 300_000, stream=COMM_STREAM + 6, after=(made,))
        optimizer(program, (made,))

    return noisy_job(stages * data, steps, step, (*lines, *rows, *ends), faults, noise)


def heads_and_rings(heads: int = 2, parts: int = 2, data: int = 2, steps: int = 4, faults: Faults = (), *,
                    layers: int = 3, noise: Noise | None = None) -> Job:  # fmt: skip
    """Sequences cut two ways: all-to-alls by heads within pairs, keys go round between pairs; gradients over all.

    `pair`: a pair's all-to-alls take longer.
    """
    ranks = heads * parts * data
    pairs = adjacent("ulysses", heads, parts * data)
    rings = [
        Group(f"ring{d}{h}", tuple(d * heads * parts + p * heads + h for p in range(parts)), "ring")
        for d in range(data)
        for h in range(heads)
    ]
    world = Group("world", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        pair = pairs[program.rank // heads]
        ring = next(group for group in rings if program.rank in group.ranks)
        place = ring.ranks.index(program.rank)
        slow_ns = time_ns(faults, "pair", program.rank, number) // (4 * layers)
        load(program, faults, number)
        for layer in range(2 * layers):
            made = layer_of(program, "aten::linear", "qkv_gemm", 350_000, 11_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            held = program.collective("all_to_all", pair, 3_000_000, 60_000 + slow_ns, after=(made,))
            for part in range(parts):
                needed = (held,)
                if part < parts - 1:
                    held = program.exchange(ring, 2_000_000, 70_000, sends=(ring.ranks[(place + 1) % parts],),
                                            receives=(ring.ranks[place - 1],), stream=COMM_STREAM + 1, after=(held,))  # fmt: skip
                made = after_of(program, "aten::_flash_attention_forward", "flash_fwd_kernel", 300_000, needed, 11_000,
                                "[[1, 4096, 8, 128]]")  # fmt: skip
            made = program.collective("all_to_all", pair, 3_000_000, 60_000 + slow_ns, after=(made,))
        made = program.collective("all_reduce", world, 20_000_000, 400_000, stream=COMM_STREAM + 2, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (*pairs, *rings, world), faults, noise)


def two_streams(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 8, noise: Noise | None = None
) -> Job:
    """Each layer has two branches, on a stream each, that meet. `side`: a rank's second branch has more to compute."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        more_ns = time_ns(faults, "side", program.rank, number) // (2 * layers)
        load(program, faults, number)
        needed: tuple[int, ...] = (program.launched - 1,)
        for layer in range(2 * layers):
            is_backward = layer >= layers
            way, times = ("_backward", 2) if is_backward else ("", 1)
            one = after_of(
                program, f"aten::linear{way}", f"main_gemm{way}", 260_000 * times, needed, 11_000, WIDE_SHAPES
            )
            with program.range(f"aten::conv1d{way}", "operator", f"[[{2048 + more_ns // 100}, 2048]]"):
                program.host(11_000)
                two = program.kernel(
                    f"side_conv{way}", 220_000 * times + more_ns, stream=COMPUTE_STREAM + 1, after=needed
                )
            needed = (one, two)
            if layer == 1:
                strike(program, faults, number)
            if is_backward:
                reduced = program.collective("all_reduce", world, 8_000_000, 170_000, after=(one, two))
        optimizer(program, (reduced, *needed))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
