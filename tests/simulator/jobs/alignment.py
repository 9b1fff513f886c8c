"""Several models in turn on the same GPUs: actor, reference, reward and critic; encoders and decoders of one rank."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import Group, Job, Program
from tests.simulator.workloads import (
    WIDE_BACK_SHAPES,
    after_of,
    layer_of,
    noisy_job,
    optimizer,
)

_PICTURES = "[[1, 16, 9, 60, 104], [384, 16, 3, 3, 3]]"


def filmed(
    ranks: int = 4, steps: int = 4, faults: Faults = (), *, iterations: int = 8, noise: Noise | None = None
) -> Job:
    """Films are denoised, heads exchanged around attention; a step is one film. `decode`: rank 0 alone turns it into pictures."""
    world = Group("0", tuple(range(ranks)), "ulysses")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        made = program.collective("broadcast", world, 400_000, 20_000, after=(program.launched - 1,))
        for iteration in range(iterations):
            with program.range("denoise"):
                for _ in range(3):
                    made = after_of(program, "aten::linear", "qkv_gemm", 160_000, (made,))
                    made = program.collective("all_to_all", world, 3_000_000, 40_000, after=(made,))
                    made = after_of(program, "aten::_flash_attention_forward", "flash_fwd_kernel", 320_000, (made,))
                    made = program.collective("all_to_all", world, 1_000_000, 20_000, after=(made,))
                    made = after_of(program, "aten::linear", "mlp_gemm", 200_000, (made,))
            if iteration == 2:
                strike(program, faults, number)
        with program.range("vae.decode"):
            for _ in range(6):
                ns = time_ns(faults, "decode", program.rank, number) // 6
                if ns:
                    layer_of(program, "aten::cudnn_convolution", "vae_conv3d", ns, 14_000, _PICTURES)

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def encoded_by_one(ranks: int = 4, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Latents come from rank 0, which sends a step's to all; then the network trains. `encode`: it encodes all ranks' pictures."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        with program.range("vae.encode"):
            for _ in range(5):
                ns = time_ns(faults, "encode", program.rank, number) // 5
                if ns:
                    layer_of(program, "aten::cudnn_convolution", "vae_conv3d", ns, 14_000, _PICTURES)
        sent = program.collective("broadcast", world, 4_000_000, 60_000, after=(program.launched - 1,))
        for layer in range(8):
            after_of(program, "aten::linear", "unet_forward", 280_000, (sent,) if not layer else ())
            if layer == 1:
                strike(program, faults, number)
        for _ in range(8):
            made = layer_of(program, "AddmmBackward0", "unet_backward", 560_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 8_000_000, 200_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
