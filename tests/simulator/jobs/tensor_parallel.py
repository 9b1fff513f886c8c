"""Jobs whose ranks share each layer: sequences in parts, products by chunks, small collectives in every layer."""

from tests.simulator.faults import Faults, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program, adjacent, strided
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


def sequence_parallel(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 6) -> Job:
    """Tensor parallel with sequences in parts: gathered before each layer, scattered after it."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(2 * layers):
            gathered = program.collective("all_gather", world, 4_000_000, 80_000, after=needed)
            with program.range("aten::mm", "operator", SHAPES):
                program.host(12_000)
                made = program.kernel("gemm", 300_000, after=(gathered,))
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            needed = (program.collective("reduce_scatter", world, 4_000_000, 80_000, after=(made,)),)
        optimizer(program, needed)

    return job_of(ranks, steps, step, (world,), faults)


def chunked_tensor(
    ranks: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 6, noise: Noise | None = None
) -> Job:
    """Tensor parallelism by chunks: a chunk of the sequence goes round while the product of the one before is made."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        following, before = (program.rank + 1) % ranks, (program.rank - 1) % ranks
        load(program, faults, number)
        made = program.kernel("embedding", 50_000)
        for layer in range(2 * layers):
            sent = made
            with program.range("symm_mem::fused_all_gather_matmul", "operator", WIDE_SHAPES):
                for chunk in range(ranks):
                    program.host(8_000)
                    own = (sent,)
                    if chunk < ranks - 1:
                        sent = program.exchange(
                            world, 1_000_000, 60_000, sends=(following,), receives=(before,), after=own
                        )
                    made = program.kernel("gemm_chunk", 90_000, after=own if chunk else ())
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            program.host(15_000)
            made = program.collective("reduce_scatter", world, 4_000_000, 70_000, stream=COMM_STREAM + 1, after=(made,))
            with program.range("aten::native_layer_norm", "operator", WIDE_SHAPES):
                program.host(8_000)
                made = program.kernel("layer_norm", 30_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def precise(tensor: int = 2, data: int = 4, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Tensor within data parallel; a rank with the fault `wide` makes one in three products in 32 bits, by another kernel."""
    rows = adjacent("tp", tensor, data)
    columns = strided("dp", data, tensor)

    def step(program: Program, number: int) -> None:
        is_wide = hit(faults, "wide", program.rank, number)
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        load(program, faults, number)
        for layer in range(15):
            name, ns = (
                ("ampere_sgemm_128x64", 500_000) if is_wide and layer % 3 == 0 else ("nvjet_hsh_128x256", 200_000)
            )
            made = after_of(program, "aten::mm", name, ns, (program.launched - 1,))
            if layer == 1:
                strike(program, faults, number)
            made = program.collective("all_reduce", row, 2_000_000, 40_000, after=(program.launched - 1,))
            after_of(program, "aten::add", "add_kernel", 12_000, (made,), 7_000)
        made = program.collective(
            "all_reduce", column, 24_000_000, 300_000, stream=COMM_STREAM + 1, after=(program.launched - 1,)
        )
        optimizer(program, (made,))

    return noisy_job(tensor * data, steps, step, (*rows, *columns), faults, noise)


def many_scales(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 48) -> Job:
    """Tensor parallel in eight bits: a small all-reduce of the largest value before each product."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            layer_of(program, "aten::amax", "reduce_kernel", 12_000, 6_000)
            largest = program.collective("all_reduce", world, 8, 16_000, after=(program.launched - 1,))
            with program.range("aten::_scaled_mm", "operator", SHAPES):
                program.host(10_000)
                made = program.kernel("nvjet_qqtst_128x128", 90_000, after=(largest,))
            if layer % 2:
                reduced = program.collective("all_reduce", world, 2_000_000, 35_000, after=(made,))
                program.kernel("residual", 8_000, after=(reduced,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def guided(ranks: int = 8, steps: int = 6, faults: Faults = (), *, layers: int = 8, noise: Noise | None = None) -> Job:
    """Images by pairs of ranks, one with the text and one without; both meet after each pass, all at a step's end.

    `text`: what attention to longer texts takes more.
    """
    pairs = adjacent("cfg", 2, ranks // 2)
    world = Group("w", tuple(range(ranks)), "world")

    def step(program: Program, number: int) -> None:
        more_ns = time_ns(faults, "text", program.rank, number) // (2 * layers)
        length = 77 + more_ns // 1_000
        for _ in range(2):
            for layer in range(layers):
                layer_of(program, "aten::linear", "dit_gemm", 180_000, 14_000, WIDE_SHAPES)
                made = layer_of(program, "aten::_scaled_dot_product_flash_attention", "flash_fwd", 80_000 + more_ns, 14_000,
                                f"[[1, 16, 4096, 64], [1, 16, {length}, 64]]")  # fmt: skip
                if layer == 1:
                    strike(program, faults, number)
            made = program.collective("all_gather", pairs[program.rank // 2], 1_000_000, 40_000, after=(made,))
            made = after_of(program, "aten::lerp", "lerp", 20_000, (made,), 8_000, "[[1, 4096, 64]]")
        program.collective("all_gather", world, 4_000_000, 120_000, after=(made,))

    return noisy_job(ranks, steps, step, (*pairs, world), faults, noise)


def normed(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 12, noise: Noise | None = None) -> Job:
    """Batch norms over all ranks: a small all-gather within each layer of forward, a small all-reduce in backward."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        made = program.launched - 1
        for layer in range(layers):
            made = after_of(program, "aten::cudnn_convolution", "conv_fprop", 180_000, (made,))
            if layer == 1:
                strike(program, faults, number)
            with program.range("SyncBatchNorm", "operator", WIDE_SHAPES):
                program.host(30_000)
                made = program.collective("all_gather", world, 2_048, 14_000, after=(program.launched - 1,))
                made = program.kernel("batch_norm_elemt", 40_000, after=(made,))
        for layer in range(layers):
            with program.range("SyncBatchNormBackward", "operator", WIDE_SHAPES):
                program.host(30_000)
                made = program.collective("all_reduce", world, 2_048, 14_000, after=(made,))
                made = program.kernel("batch_norm_backward_elemt", 40_000, after=(made,))
            made = after_of(
                program, "aten::convolution_backward", "conv_dgrad_wgrad", 360_000, (made,), shapes=WIDE_BACK_SHAPES
            )
            if layer % 4 == 3:
                last = program.collective(
                    "all_reduce", world, 12_000_000, 220_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (last,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
