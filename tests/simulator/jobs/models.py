"""Jobs told apart by what they train: two models, embeddings, adapters, adversaries; on one GPU each."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import SHAPES, WIDE_SHAPES, job_of, layer_of, noisy_job, optimizer


def two_models(ranks: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Two models in turn, each with gradients of its own group name, as a generator and its critic."""
    first, second = (Group(name, tuple(range(ranks)), name) for name in ("generator", "critic"))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for group, name in ((first, "generator_gemm"), (second, "critic_gemm")):
            for layer in range(5):
                made = layer_of(program, "aten::linear", name, 400_000, 15_000, SHAPES)
                if layer == 1 and group is second:
                    strike(program, faults, number)
                reduced = program.collective("all_reduce", group, 3_000_000, 120_000, after=(made,))
            optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (first, second), faults)


def adversaries(
    ranks: int = 4, steps: int = 9, faults: Faults = (), *, every: int = 4, noise: Noise | None = None
) -> Job:
    """A discriminator and a generator, each with its optimizer; every so many steps gradients are penalised, on all ranks.

    `augment`: a rank's host prepares its pictures for longer, before the discriminator.
    """
    one, other = Group("0", tuple(range(ranks)), "D"), Group("1", tuple(range(ranks)), "G")

    def half(program: Program, group: Group, name: str, many: int, stream: int) -> None:
        for _ in range(many):
            layer_of(program, "aten::cudnn_convolution", f"{name}_forward", 220_000, 14_000, WIDE_SHAPES)
        for _ in range(many):
            made = layer_of(program, "aten::convolution_backward", f"{name}_backward", 440_000, 14_000, WIDE_SHAPES)
            made = program.collective("all_reduce", group, 5_000_000, 150_000, stream=stream, after=(made,))
        optimizer(program, (made,))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        augment_ns = time_ns(faults, "augment", program.rank, number)
        if augment_ns:
            with program.range("augment"):
                program.host(augment_ns, "augment.py(77): __call__", "frame")
        half(program, one, "discriminator", 6, COMM_STREAM)
        if number % every == 0:
            for _ in range(6):
                layer_of(program, "aten::_convolution_double_backward", "double_backward", 500_000, 14_000, WIDE_SHAPES)
        half(program, other, "generator", 8, COMM_STREAM + 1)

    return noisy_job(ranks, steps, step, (one, other), faults, noise, ends_synced=False)


def recommending(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """Embedding tables in model parallel, exchanged; towers in data parallel; `tables`: lookups that take longer."""
    world, towers = Group("0", tuple(range(ranks))), Group("1", tuple(range(ranks)), "towers")

    def step(program: Program, number: int) -> None:
        more_ns = time_ns(faults, "tables", program.rank, number) // 3
        load(program, faults, number)
        for phase, part in (("", 1), ("_dense_backward", 2)):
            with program.range(f"aten::_embedding_bag{phase}", "operator", "[[4000000, 128], [65536]]"):
                program.host(15_000)
                made = program.kernel(f"embedding_bag{phase}", (400_000 + more_ns) * part)
            if not phase:
                made = program.collective("all_to_all", world, 2_000_000, 200_000, after=(made,))
                for layer in range(5):
                    made = layer_of(program, "aten::linear", "tower_gemm", 300_000, 15_000, SHAPES)
                    if layer == 1:
                        strike(program, faults, number)
                reduced = program.collective(
                    "all_reduce", towers, 2_000_000, 200_000, stream=COMM_STREAM + 1, after=(made,)
                )
                program.kernel(
                    "wait", 1_000, after=(program.collective("all_to_all", world, 2_000_000, 200_000, after=(made,)),)
                )
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world, towers), faults)


def frozen(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """Low-rank adapters: almost all is forward, the gradients are small."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        with program.range("forward"):
            for layer in range(16):
                layer_of(program, "aten::linear", "gemm", 400_000, 12_000, SHAPES)
                layer_of(program, "aten::mm", "adapter_gemm", 15_000, 8_000, "[[4096, 768], [768, 8]]")
                if layer == 1:
                    strike(program, faults, number)
        with program.range("backward"):
            for _ in range(4):
                made = layer_of(program, "aten::mm", "adapter_backward", 60_000, 8_000, "[[768, 4096], [4096, 8]]")
            made = program.collective("all_reduce", world, 50_000, 25_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)
