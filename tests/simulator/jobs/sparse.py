"""Gradients with few rows: sizes are read and exchanged, then as many rows as the fullest rank has; and copies of states."""

import random

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import (
    SHAPES,
    WIDE_BACK_SHAPES,
    WIDE_SHAPES,
    after_of,
    job_of,
    layer_of,
    noisy_job,
    optimizer,
)


def few_rows(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 7, noise: Noise | None = None
) -> Job:
    """Rows of an embedding are made unique, their number read and gathered, then padded rows; dense gradients are reduced.

    `unique`: a rank's rows take longer to sort, since it has more of them.
    """
    world = Group("0", tuple(range(ranks)), "dp")

    def read(program: Program, after: int) -> None:
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 8, 2_000, stream=COMPUTE_STREAM, after=(after,))
            program.sync("cudaStreamSynchronize", after=(program.launched - 1,))

    def step(program: Program, number: int) -> None:
        rows = random.Random(f"{program.rank} {number}").randint(9_000, 10_000)
        more_ns = time_ns(faults, "unique", program.rank, number)
        load(program, faults, number)
        for layer in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 260_000, 11_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(layers):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 520_000, 11_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 8_000_000, 170_000, after=(made,))
        many = rows + more_ns // 200
        made = layer_of(
            program,
            "aten::unique_consecutive",
            "DeviceRadixSortOnesweep",
            300_000 + more_ns,
            12_000,
            f"[[{many}, 512]]",
        )
        read(program, made)
        made = program.collective("all_gather", world, ranks, 14_000, stream=COMM_STREAM + 1, after=(made,))
        read(program, made)
        made = program.collective("all_gather", world, 512 * 12_000 * ranks, 300_000, stream=COMM_STREAM + 1)
        after_of(program, "aten::index_add_", "index_add_kernel", 150_000, (made,), 11_000, "[[48000, 512]]")
        optimizer(program, ())

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def snapshots(
    ranks: int = 4, steps: int = 6, faults: Faults = (), *, layers: int = 6, noise: Noise | None = None
) -> Job:
    """Sharded; `snapshot`: a rank's state is copied to its host on the stream of its kernels, which wait; the host does not."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for place in range(2 * layers):
            got = program.collective("all_gather", world, 12_000_000, 100_000)
            name, ns = ("aten::linear", 330_000) if place < layers else ("AddmmBackward0", 660_000)
            shapes = WIDE_SHAPES if place < layers else WIDE_BACK_SHAPES
            made = after_of(program, name, "gemm", ns, (got,), 11_000, shapes)
            if place == 1:
                strike(program, faults, number)
            if place >= layers:
                made = program.collective(
                    "reduce_scatter", world, 12_000_000, 110_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))
        snapshot_ns = time_ns(faults, "snapshot", program.rank, number)
        if snapshot_ns:
            with program.range("stage_state_dict"):
                for _ in range(4):
                    program.copy("DtoH", 128 << 20, snapshot_ns // 4, stream=COMPUTE_STREAM)

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def pooled(
    ranks: int = 2, steps: int = 4, faults: Faults = (), *, sums_ns: int = 2_000_000, is_one_hot: bool = False
) -> Job:
    """Features are summed by their class, of which there are few; or rows of a table are picked by one-hot products."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(8):
            layer_of(program, "aten::linear", "gemm", 400_000, 14_000, SHAPES)
        if is_one_hot:
            with program.range("aten::one_hot", "operator", "[[4096], []]"):
                program.host(5_000)
                layer_of(program, "aten::scatter_", "scatter", 30_000, 9_000, "[[4096, 32000], [], [4096, 1], []]")
            made = layer_of(program, "aten::mm", "gemm", sums_ns, 14_000, "[[4096, 32000], [32000, 512]]")
        else:
            made = layer_of(program, "aten::index_add_", "indexFuncLargeIndex", sums_ns, 14_000,
                            "[[16, 64], [], [65536], [65536, 64], []]")  # fmt: skip
        made = program.collective("all_reduce", world, 2_000_000, 60_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)
