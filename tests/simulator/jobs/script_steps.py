"""Steps as training scripts write them: micro-batches whose gradients wait, buckets in the wrong order, snapshots in threads."""

import random

from tests.simulator.faults import LOADER_OF_WORKERS, Faults, load, strike, time_ns
from tests.simulator.jobs.transformers import block
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import after_of, layer_of, noisy_job, optimizer


def _read_loss(program: Program) -> None:
    with program.range("aten::item", "operator"):
        program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
        program.sync("cudaStreamSynchronize", after=(program.launched - 1,))


def without_sync(ranks: int = 8, steps: int = 4, faults: Faults = (), *, micro: int = 3, layers: int = 3,
                 noise: Noise | None = None) -> Job:  # fmt: skip
    """Sharded over three micro-batches: parameters are gathered for each pass, gradients scattered in the last; the loss is read.

    `late`: a rank's fault strikes in the last micro-batch's backward.
    """
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        made, scattered = -1, -1
        for own in range(micro):
            load(program, faults, number) if not own else load(program, (), number)
            for is_backward in (False, True):
                with program.range("backward" if is_backward else "forward"):
                    ahead = program.collective("all_gather", world, 16_000_000, 150_000)
                    for layer in range(layers):
                        got = ahead
                        if layer + 1 < layers:
                            ahead = program.collective("all_gather", world, 16_000_000, 150_000)
                        with program.range("FSDP::pre_forward" if not is_backward else "FSDP::pre_backward"):
                            program.host(40_000)
                        made = block(program, (got,), is_backward=is_backward, size=0.7)
                        if own == 1 and layer == 1 and not is_backward:
                            strike(program, faults, number)
                        if own == micro - 1 and is_backward:
                            scattered = program.collective(
                                "reduce_scatter", world, 16_000_000, 160_000, stream=COMM_STREAM + 1, after=(made,)
                            )
        optimizer(program, (scattered,))
        _read_loss(program)

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def in_wrong_order(
    ranks: int = 8, steps: int = 4, faults: Faults = (), *, layers: int = 4, noise: Noise | None = None
) -> Job:
    """Data parallel; buckets are reduced in the order of forward, so that the first one waits for the last gradient."""
    world = Group("0", tuple(range(ranks)), "ddp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            block(program)
            if layer == 1:
                strike(program, faults, number)
        made = -1
        for _ in range(layers):
            made = block(program, is_backward=True)
        for _ in range(layers):
            reduced = program.collective("all_reduce", world, 50_000_000, 500_000, after=(made,))
        optimizer(program, (reduced,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def pictures(ranks: int = 4, steps: int = 8, faults: Faults = (), *, layers: int = 12,
             noise: Noise | None = None) -> Job:  # fmt: skip
    """Convolutions with norms over all ranks, workers that load, a loss that is read; `decode`: what a batch takes longer."""
    world = Group("0", tuple(range(ranks)), "ddp")

    def step(program: Program, number: int) -> None:
        with program.range(LOADER_OF_WORKERS):
            program.host(60_000 + time_ns(faults, "decode", program.rank, number))
        with program.range("aten::to", "operator"):
            program.copy("HtoD", 38_535_168, 900_000, stream=COMPUTE_STREAM)
        load(program, faults, number)
        for layer in range(layers):
            made = layer_of(
                program,
                "aten::cudnn_convolution",
                "cudnn_fprop",
                260_000,
                16_000,
                "[[64, 128, 56, 56], [128, 128, 3, 3]]",
            )
            if layer % 4 == 0:
                got = program.collective("all_gather", world, 512, 12_000, stream=COMM_STREAM + 1, after=(made,))
                made = after_of(
                    program, "aten::batch_norm_elemt", "batch_norm_kernel", 45_000, (got,), 9_000, "[[64, 128, 56, 56]]"
                )
            layer_of(program, "aten::relu_", "relu_kernel", 25_000, 7_000, "[[64, 128, 56, 56]]")
            if layer == 1:
                strike(program, faults, number)
        for layer in range(layers):
            made = layer_of(
                program, "ConvolutionBackward0", "cudnn_dgrad", 520_000, 18_000, "[[64, 128, 56, 56], [128, 128, 3, 3]]"
            )
            if layer % 4 == 3:
                made = program.collective("all_reduce", world, 6_000_000, 140_000, after=(made,))
        optimizer(program, (made,))
        _read_loss(program)

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def merged_over_nodes(each: int = 4, nodes: int = 2, steps: int = 8, faults: Faults = (), *, every: int = 4, layers: int = 3,
                      noise: Noise | None = None) -> Job:  # fmt: skip
    """Gradients are reduced within nodes; every fourth step parameters are averaged across them, behind the optimizer.

    `card`: the averages of a rank's place take longer. `noisy`: a rank's kernels take 1.5 times as long in some layers, by chance.
    """
    rows, columns = adjacent("node", each, nodes), strided("outer", nodes, each)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // each], columns[program.rank % each]
        drawn = random.Random(f"{program.rank} {number}")
        is_noisy = time_ns(faults, "noisy", program.rank, number)
        load(program, faults, number)
        for layer in range(layers):
            block(program, size=1.5 if is_noisy and drawn.random() < 0.5 else 1.0)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(layers):
            made = block(program, is_backward=True, size=1.5 if is_noisy and drawn.random() < 0.5 else 1.0)
            made = program.collective("all_reduce", row, 40_000_000, 300_000, after=(made,))
        optimizer(program, (made,))
        if number % every == every - 1:
            slow_ns = sum(time_ns(faults, "card", rank, number) for rank in column.ranks)
            program.collective("all_reduce", column, 120_000_000, 2_500_000 + slow_ns, stream=COMM_STREAM + 1,
                               after=(program.launched - 1,))  # fmt: skip
            after_of(program, "aten::lerp_", "lerp_kernel", 120_000, (program.launched - 1,), 9_000, "[[120000000]]")

    return noisy_job(each * nodes, steps, step, (*rows, *columns), faults, noise)
