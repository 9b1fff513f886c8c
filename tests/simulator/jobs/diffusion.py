"""Training of diffusion models: frozen encoders run first, the network is trained, averaged weights follow."""

from tests.simulator.faults import Faults, factor, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, layer_of, noisy_job, optimizer

PICTURE_SHAPES = "[[8, 128, 512, 512], [128, 128, 3, 3]]"


def latent(ranks: int = 4, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Texts and pictures are encoded, frozen; then the network, data parallel, and an average of its weights.

    `wide`: a rank encodes pictures in 32 bits; `average`: it keeps the average in the host's memory.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        is_wide = hit(faults, "wide", program.rank, number)
        load(program, faults, number)
        with program.range("encode_prompt"):
            for _ in range(6):
                layer_of(program, "aten::linear", "text_gemm", 60_000, 9_000, "[[616, 1024], [1024, 1024]]")
        with program.range("vae.encode"):
            for _ in range(5):
                ns = round(350_000 * factor(faults, "wide", program.rank, number))
                name = "implicit_convolve_sgemm" if is_wide else "cudnn_convolve_bf16"
                layer_of(program, "aten::cudnn_convolution", name, ns, 14_000, PICTURE_SHAPES)
        with program.range("unet"):
            for layer in range(8):
                layer_of(program, "aten::linear", "unet_forward", 300_000, 14_000, WIDE_SHAPES)
                if layer == 1:
                    strike(program, faults, number)
        for _ in range(8):
            made = layer_of(program, "AddmmBackward0", "unet_backward", 600_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 8_000_000, 200_000, after=(made,))
        optimizer(program, (made,))
        with program.range("ema.step"):
            average_ns = time_ns(faults, "average", program.rank, number)
            if average_ns:
                with program.range("aten::to", "operator"):
                    program.copy("DtoH", 200 << 20, average_ns // 4, stream=COMPUTE_STREAM, memory="Pageable")
                    program.sync("cudaStreamSynchronize")
                program.host(average_ns - average_ns // 4, "aten::lerp_")
            else:
                layer_of(program, "aten::_foreach_lerp_", "multi_tensor_apply_kernel", 90_000, 12_000, "")

    return noisy_job(ranks, steps, step, (world,), faults, noise)
