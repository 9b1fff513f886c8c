"""Jobs told apart by what is exchanged within the model: statistics of batches, small factors of gradients, a teacher's logits."""

from tests.simulator.faults import Faults, hit, load, strike
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, after_of, layer_of, noisy_job, optimizer

_PICTURES = "[[32, 256, 56, 56], [256, 256, 3, 3]]"


def normalised(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 12, noise: Noise | None = None
) -> Job:
    """Convolutions whose batch norms are of all ranks: statistics are gathered in forward and summed in backward."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(layers):
            after_of(program, "aten::cudnn_convolution", "cudnn_forward", 160_000, needed, 9_000, _PICTURES)
            made = layer_of(program, "aten::batch_norm_stats", "batch_norm_stats_kernel", 30_000, 6_000, _PICTURES)
            needed = (program.collective("all_gather", world, 513 * ranks, 14_000, after=(made,)),)
            if layer == 1:
                strike(program, faults, number)
        for layer in range(layers):
            made = after_of(program, "aten::batch_norm_backward_reduce", "batch_norm_backward_kernel", 40_000, needed,
                            6_000, _PICTURES)  # fmt: skip
            needed = (program.collective("all_reduce", world, 512, 14_000, after=(made,)),)
            made = after_of(program, "aten::convolution_backward", "cudnn_backward", 320_000, needed, 9_000, _PICTURES)
            if layer % 3 == 2:
                reduced = program.collective(
                    "all_reduce", world, 5_000_000, 130_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (reduced,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def distilled(ranks: int = 4, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """A large frozen teacher runs forward before a small student is trained. `math`: a rank's teacher has no fused attention."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        with program.range("teacher"):
            for layer in range(10):
                layer_of(program, "aten::linear", "teacher_gemm", 350_000, 12_000, "[[8192, 4096], [4096, 4096]]")
                if hit(faults, "math", program.rank, number):
                    for part in ("bmm", "softmax", "bmm"):
                        layer_of(program, f"aten::{part}", f"{part}_kernel", 140_000, 8_000, "[[128, 2048, 2048]]")
                else:
                    layer_of(program, "aten::_flash_attention_forward", "flash_fwd_kernel", 150_000, 12_000,
                             "[[8, 16, 2048, 128]]")  # fmt: skip
                if layer == 1:
                    strike(program, faults, number)
        with program.range("student"):
            for _ in range(4):
                layer_of(program, "aten::linear", "student_gemm", 120_000, 12_000, WIDE_SHAPES)
        for _ in range(4):
            made = layer_of(program, "AddmmBackward0", "student_backward", 240_000, 12_000, WIDE_BACK_SHAPES)
        made = program.collective("all_reduce", world, 12_000_000, 260_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def low_rank(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 10, noise: Noise | None = None
) -> Job:
    """Gradients are compressed: two thin factors each are reduced, with an orthogonalization between them."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 300_000, 12_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(layers):
            layer_of(program, "AddmmBackward0", "backward_gemm", 600_000, 12_000, WIDE_BACK_SHAPES)
            made = layer_of(program, "aten::bmm", "factor_gemm", 25_000, 8_000, "[[1, 2048, 2048], [1, 2048, 4]]")
            one = program.collective("all_reduce", world, 8192, 16_000, after=(made,))
            made = after_of(program, "aten::linalg_qr", "orthogonalize", 60_000, (one,), 9_000, "[[1, 2048, 4]]")
            made = layer_of(program, "aten::bmm", "factor_gemm", 25_000, 8_000, "[[1, 2048, 2048], [1, 2048, 4]]")
            made = program.collective("all_reduce", world, 8192, 16_000, after=(made,))
        program.kernel("decompress", 120_000, stream=COMPUTE_STREAM, after=(made,))
        optimizer(program, ())

    return noisy_job(ranks, steps, step, (world,), faults, noise)
