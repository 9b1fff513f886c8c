"""A second lot of kinds that no other file has: attention by heads, boxes on the CPU, environments, averaged weights."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program
from tests.simulator.unseen_jobs import SHAPES, drawn
from tests.simulator.workloads import layer_of, microbatch, one_forward_one_backward, optimizer


def by_heads(
    ranks: int = 8, steps: int = 4, faults: Faults = (), *, layers: int = 5, noise: Noise | None = None
) -> Job:
    """Sequences in parts, attention by heads: an all-to-all before and one after; gradients over all."""
    world = Group("0", tuple(range(ranks)), "sp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        made = program.launched - 1
        for layer in range(2 * layers):
            with program.range("aten::linear", "operator", SHAPES):
                program.host(14_000)
                made = program.kernel("qkv_gemm", 300_000, after=(made,))
            sent = program.collective("all_to_all", world, 3_000_000, 70_000, after=(made,))
            with program.range("aten::_scaled_dot_product_flash_attention", "operator", "[[1, 4, 8192, 128]]"):
                program.host(14_000)
                made = program.kernel("flash_fwd", 350_000, after=(sent,))
            if layer == 1:
                strike(program, faults, number)
            made = program.collective("all_to_all", world, 3_000_000, 70_000, after=(program.launched - 1,))
        made = program.collective("all_reduce", world, 16_000_000, 300_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def boxes(ranks: int = 4, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Detection: boxes are brought to the host, sorted out there, and copied back in the middle of forward; `nms` on a rank."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(8):
            made = layer_of(
                program,
                "aten::cudnn_convolution",
                "conv_forward",
                450_000,
                18_000,
                "[[8, 64, 200, 200], [64, 64, 3, 3]]",
            )
        with program.range("aten::to", "operator"):
            program.copy("DtoH", 1 << 18, 30_000, stream=COMPUTE_STREAM, memory="Pageable")
            program.sync("cudaStreamSynchronize")
        with program.range("torchvision::nms", "operator"):
            program.host(200_000 + time_ns(faults, "nms", program.rank, number), "aten::something")
        program.copy("HtoD", 1 << 16, 10_000, stream=COMPUTE_STREAM)
        for _ in range(10):
            made = layer_of(
                program,
                "aten::convolution_backward",
                "conv_backward",
                600_000,
                18_000,
                "[[8, 64, 200, 200], [64, 64, 3, 3]]",
            )
            made = program.collective("all_reduce", world, 5_000_000, 120_000, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def environments(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, env_ns: int = 60_000, noise: Noise | None = None
) -> Job:
    """Acts in environments of the CPU, an action a time, then learns; `env`: a rank's environments are slower."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        more_ns = time_ns(faults, "env", program.rank, number) // 20
        with program.range("collect"):
            for _ in range(20):
                layer_of(program, "aten::addmm", "policy_gemm", 30_000, 15_000, "[[64, 128], [128, 128]]")
                program.copy("DtoH", 256, 2_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize")
                program.host(env_ns + more_ns, "envs.py(60): step", "frame")
                program.copy("HtoD", 4096, 3_000, stream=COMPUTE_STREAM)
        for _ in range(12):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 14_000, SHAPES)
            made = program.collective("all_reduce", world, 3_000_000, 110_000, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def averaged(ranks: int = 8, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """`ema`: a rank also keeps an average of the weights, tensor by tensor, after the optimizer."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(12):
            gathered = program.collective("all_gather", world, 8_000_000, 80_000)
            with program.range("aten::linear", "operator", SHAPES):
                program.host(14_000)
                made = program.kernel("gemm", 500_000, after=(gathered,))
            if layer == 1:
                strike(program, faults, number)
            if layer >= 6:
                made = program.collective(
                    "reduce_scatter", world, 8_000_000, 90_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))
        ema_ns = time_ns(faults, "ema", program.rank, number)
        for _ in range(30 if ema_ns else 0):
            layer_of(program, "aten::lerp_", "vectorized_lerp", ema_ns // 30, 10_000, "[[2048, 2048], [2048, 2048]]")

    return drawn(ranks, steps, step, (world,), faults, noise)


def stages_of_tensors(tensor: int = 2, stages: int = 2, steps: int = 4, faults: Faults = (), *, microbatches: int = 6,
                      noise: Noise | None = None) -> Job:  # fmt: skip
    """Pipelines whose stages meet in a barrier of all at the end of a step."""
    world = Group("w", tuple(range(tensor * stages)))
    lines = [Group(f"pp{t}", tuple(range(t, tensor * stages, tensor)), "pp") for t in range(tensor)]

    def step(program: Program, number: int) -> None:
        stage, place = divmod(program.rank, tensor)
        load(program, faults, number)
        for count, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, microbatches, 1)):
            microbatch(program, lines[place], stage, stages, 600_000, is_forward=is_forward)
            if count == 2:
                strike(program, faults, number)
        made = program.collective(
            "all_reduce", world, 64, 15_000, stream=COMM_STREAM + 8, after=(program.launched - 1,)
        )
        optimizer(program, (made,))

    return drawn(tensor * stages, steps, step, (world, *lines), faults, noise)


def swallowed(
    ranks: int = 4, steps: int = 3, faults: Faults = (), *, micro: int = 6, noise: Noise | None = None
) -> Job:
    """Gradients are accumulated without an exchange but in the last microbatch; then norms are exchanged."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for part in range(micro):
            for layer in range(8):
                made = layer_of(program, "aten::linear", "gemm", 300_000, 14_000, SHAPES)
                if part == micro - 2 and layer == 1:
                    strike(program, faults, number)
                if part == micro - 1 and layer >= 4:
                    made = program.collective("all_reduce", world, 6_000_000, 140_000, after=(made,))
        made = program.collective("all_reduce", world, 1, 15_000, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)
