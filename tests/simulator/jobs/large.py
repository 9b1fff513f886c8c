"""Large models: sequences exchanged by heads, distributed optimizers behind pipelines, heavy ends, experts across nodes."""

import random

from tests.simulator.faults import Faults, hit, load, strike, time_ns
from tests.simulator.jobs.transformers import block
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import (
    WIDE_BACK_SHAPES,
    WIDE_SHAPES,
    after_of,
    noisy_job,
    one_forward_one_backward,
    optimizer,
)


def by_heads(sequence: int = 4, data: int = 2, steps: int = 4, faults: Faults = (), *, layers: int = 4,
             noise: Noise | None = None) -> Job:  # fmt: skip
    """Parts of sequences are exchanged for heads around attention (Ulysses); gradients scattered over all, parameters gathered.

    `pair`: the exchanges of a rank's row take longer; `long`: a row's sequences do.
    """
    rows, world = adjacent("sp", sequence, data), Group("0", tuple(range(sequence * data)), "zero")

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // sequence]
        slow_ns = sum(time_ns(faults, "pair", rank, number) for rank in row.ranks) // (4 * layers)
        long_ns = time_ns(faults, "long", program.rank, number) // (3 * layers)
        load(program, faults, number)
        made, reduced = -1, -1
        for layer in range(2 * layers):
            is_forward = layer < layers
            times, name = (1, "aten::linear") if is_forward else (2, "AddmmBackward0")
            shapes = WIDE_SHAPES if is_forward else WIDE_BACK_SHAPES
            made = after_of(program, name, "qkv_gemm", 180_000 * times, (made,) if made >= 0 else (), shapes=shapes)
            made = program.collective("all_to_all", row, 4_000_000, 70_000 + slow_ns, after=(made,))
            made = after_of(
                program,
                "aten::_flash_attention_forward" if is_forward else "FlashAttentionBackward0",
                "flash_fwd_kernel" if is_forward else "flash_bwd_kernel",
                (220_000 + long_ns) * times,
                (made,),
                shapes=f"[[{8192 + long_ns // 100}, 4, 128]]",
            )
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective("all_to_all", row, 4_000_000, 70_000 + slow_ns, after=(made,))
            made = after_of(program, name, "mlp_gemm", 350_000 * times, (made,), shapes=shapes)
            if not is_forward:
                reduced = program.collective(
                    "reduce_scatter", world, 30_000_000, 350_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (reduced,))
        program.collective(
            "all_gather", world, 60_000_000, 400_000, stream=COMPUTE_STREAM, after=(program.launched - 1,)
        )

    return noisy_job(sequence * data, steps, step, (*rows, world), faults, noise)


def heavy_ends(stages: int = 4, data: int = 2, steps: int = 4, faults: Faults = (), *, micro: int = 8,
               end_ns: tuple[int, int] = (250_000, 350_000), noise: Noise | None = None) -> Job:  # fmt: skip
    """1F1B whose first stage also looks words up and whose last one also computes the loss: both in each pass.

    `ends`: all stages have as many layers; without it layers are dealt out so that all take as long.
    """
    lines, columns = adjacent("pp", stages, data), strided("dp", data, stages)

    def step(program: Program, number: int) -> None:
        replica, stage = divmod(program.rank, stages)
        line = lines[replica]
        own_ns = {0: end_ns[0], stages - 1: end_ns[1]}.get(stage, 0)
        even_ns = (600_000 + sum(end_ns) // stages - own_ns) // 3
        layer_ns = 200_000 if hit(faults, "ends", program.rank, number) else even_ns
        load(program, faults, number)
        for at, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, micro, 1)):
            way, stream = 1 if is_forward else -1, COMM_STREAM + (0 if is_forward else 2)
            times = 1 if is_forward else 2
            needed: tuple[int, ...] = ()
            if 0 <= stage - way < stages:
                needed = (
                    program.exchange(line, 2_000_000, 40_000, receives=(line.ranks[stage - way],), stream=stream),
                )
            if stage == 0:
                needed = (after_of(program, "aten::embedding" if is_forward else "EmbeddingBackward0", "embedding_kernel",
                                   end_ns[0] * times, needed, shapes="[[128000, 4096], [1, 8192]]"),)  # fmt: skip
            if stage == stages - 1:
                needed = (after_of(program, "aten::mm" if is_forward else "MmBackward0", "vocabulary_gemm",
                                   end_ns[1] * times, needed, shapes="[[8192, 4096], [4096, 128000]]"),)  # fmt: skip
            for _ in range(3):
                made = after_of(program, "aten::linear" if is_forward else "AddmmBackward0",
                                "forward_gemm" if is_forward else "backward_gemm", layer_ns * times, needed)  # fmt: skip
                needed = ()
            if at == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if 0 <= stage + way < stages:
                program.exchange(
                    line, 2_000_000, 40_000, sends=(line.ranks[stage + way],), stream=stream + 1, after=(made,)
                )
        made = program.collective(
            "all_reduce", columns[stage], 40_000_000, 600_000, stream=COMM_STREAM + 6, after=(made,)
        )
        optimizer(program, (made,))

    return noisy_job(stages * data, steps, step, (*lines, *columns), faults, noise)


def across_nodes(nodes: int = 2, each: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 3, moves: float = 0.0,
                 noise: Noise | None = None) -> Job:  # fmt: skip
    """Blocks with experts, exchanged among the GPUs of one place on every node; gradients over all.

    `wire`: exchanges of every place take longer; `hot`: a rank's experts do. `moves`: in each step and layer another
    rank's experts get so much more, and by the others' tokens.
    """
    columns, world = strided("ep", nodes, each), Group("0", tuple(range(nodes * each)), "dp")

    def step(program: Program, number: int) -> None:
        column, place = columns[program.rank % each], program.rank // each
        wire_ns = max(time_ns(faults, "wire", rank, number) for rank in range(nodes * each)) // (4 * layers)
        hot_ns = time_ns(faults, "hot", program.rank, number) // (3 * layers)
        load(program, faults, number)
        for layer in range(2 * layers):
            is_forward = layer < layers
            own = layer if is_forward else 2 * layers - 1 - layer
            busiest = random.Random(f"{number} {own} {program.rank % each}").randrange(nodes)
            rows = round(4096 * (1 + moves * ((place == busiest) - 1 / nodes)))
            made = block(program, is_backward=not is_forward, size=0.5)
            sent, received = (4096 * 64 // nodes,) * nodes, (rows * 64 // nodes,) * nodes
            wire = 90_000 + wire_ns
            made = program.exchange_unevenly(column, sent, received, wire, after=(made,))
            made = after_of(program, "aten::_grouped_mm" if is_forward else "GroupedMmBackward0", "grouped_gemm",
                            (round(100 * rows) + hot_ns) * (1 if is_forward else 2), (made,),
                            shapes=f"[[{rows + hot_ns // 100}, 4096], [4, 4096, 2048]]")  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.exchange_unevenly(column, received, sent, wire, after=(made,))
            made = after_of(program, "aten::index_add", "combine", 25_000, (made,), 9_000, "")
            if not is_forward:
                made = program.collective(
                    "all_reduce", world, 20_000_000, 300_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return noisy_job(nodes * each, steps, step, (*columns, world), faults, noise)
