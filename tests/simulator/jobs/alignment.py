"""Several models in turn on the same GPUs: actor, reference, reward and critic; encoders and decoders of one rank."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent
from tests.simulator.workloads import (
    TOKEN_SHAPES,
    WIDE_BACK_SHAPES,
    WIDE_SHAPES,
    after_of,
    layer_of,
    noisy_job,
    optimizer,
)

_PICTURES = "[[1, 16, 9, 60, 104], [384, 16, 3, 3, 3]]"


def four_models(
    pairs: int = 2, steps: int = 4, faults: Faults = (), *, tokens: int = 24, noise: Noise | None = None
) -> Job:
    """Pairs decode in tensor parallel; three models score; advantages are whitened over all; critic and actor train, sharded.

    `answers`: a pair's answers are longer; `rules`: a rank's host scores by rules; `values`: a rank's critic trains longer.
    """
    rows = adjacent("tp", 2, pairs)
    world = Group("0", tuple(range(2 * pairs)), "fsdp")

    def step(program: Program, number: int) -> None:
        row, more = rows[program.rank // 2], time_ns(faults, "answers", program.rank, number) // 110_000
        load(program, faults, number)
        with program.range("actor_generate"):
            for _ in range(tokens + more):
                for _ in range(2):
                    layer_of(program, "aten::mm", "decode_gemm", 40_000, 9_000, TOKEN_SHAPES)
                    program.collective("all_reduce", row, 130_000, 12_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize")
        for model in ("reference", "reward", "critic"):
            with program.range(f"{model}_forward"):
                for _ in range(4):
                    layer_of(program, "aten::linear", f"{model}_gemm", 250_000, 14_000, WIDE_SHAPES)
        program.sync("cudaStreamSynchronize")
        with program.range("advantages"):
            program.host(
                400_000 + time_ns(faults, "rules", program.rank, number), "rewards.py(77): score_rules", "frame"
            )
            made = layer_of(program, "aten::mean", "reduce_kernel", 9_000, 9_000, "[[64, 1024]]")
            program.collective("all_reduce", world, 2, 14_000, after=(made,))
        _trained(program, world, "critic", 4, 250_000 + time_ns(faults, "values", program.rank, number) // 12)
        strike(program, faults, number)
        _trained(program, world, "actor", 6, 400_000)

    return noisy_job(2 * pairs, steps, step, (*rows, world), faults, noise)


def _trained(program: Program, world: Group, model: str, layers: int, ns: int) -> None:
    """Forward and backward, each layer's parameters gathered ahead, gradients scattered; then the optimizer."""
    size = ns // 100
    with program.range(f"{model}_update"):
        held = program.collective("all_gather", world, 12_000_000, 90_000)
        for _ in range(layers):
            ready, held = held, program.collective("all_gather", world, 12_000_000, 90_000)
            after_of(program, "aten::linear", f"{model}_train", ns, (ready,), 14_000, f"[[{size}, 2048], [2048, 2048]]")
        for _ in range(layers):
            made = after_of(program, "AddmmBackward0", f"{model}_train_backward", 2 * ns, (held,), 14_000,
                            f"[[{size}, 2048], [{size}, 2048]]")  # fmt: skip
            made = program.collective(
                "reduce_scatter", world, 12_000_000, 100_000, stream=COMM_STREAM + 1, after=(made,)
            )
        optimizer(program, (made,))


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
