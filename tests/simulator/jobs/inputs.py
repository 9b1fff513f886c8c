"""Jobs told apart by how their input comes: workers, copies ahead, broadcasts, encoders, what the host does with it."""

from tests.simulator.faults import LOADER_OF_WORKERS, Faults, factor, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
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


def pictures(ranks: int = 4, steps: int = 6, faults: Faults = (), *, every: int = 0, refill_ns: int = 0,
             memory: str = "Pinned", noise: Noise | None = None) -> Job:  # fmt: skip
    """Pictures come from workers; `data`: a rank waits for its next batch; every so many batches all wait so long.

    With `memory` Pageable, or the fault `pageable`, copies hold the host until they are done, and take longer.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        wait_ns = 40_000 + time_ns(faults, "data", program.rank, number)
        wait_ns += refill_ns if every and number % every == every - 1 else 0
        with program.range(LOADER_OF_WORKERS):
            program.host(wait_ns, "queue.Queue.get", "frame")
        is_pageable = memory == "Pageable" or any(
            fault.what == "pageable" and program.rank in fault.ranks for fault in faults
        )
        with program.range("aten::to", "operator"):
            if is_pageable:
                program.copy("HtoD", 38 << 20, 9_000_000, stream=COMPUTE_STREAM, memory="Pageable")
                program.sync("cudaStreamSynchronize", after=(program.launched - 1,))
            else:
                program.copy("HtoD", 38 << 20, 800_000, stream=COMPUTE_STREAM)
        for layer in range(24):
            name = "aten::cudnn_convolution" if layer < 12 else "aten::convolution_backward"
            made = layer_of(program, name, "conv_forward" if layer < 12 else "conv_backward", 450_000, 22_000,
                            "[[64, 64, 56, 56], [64, 64, 3, 3]]")  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
            if layer >= 12:
                made = program.collective("all_reduce", world, 4_000_000, 110_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def prefetched(ranks: int = 8, steps: int = 6, faults: Faults = ()) -> Job:
    """The next batch is copied beside this one's compute: of 6 ms; at half width (`pcie`) it takes longer than a step."""
    world = Group("0", tuple(range(ranks)))
    copied: dict[int, int] = {}

    def step(program: Program, number: int) -> None:
        times = factor(faults, "pcie", program.rank, number)
        with program.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            program.host(30_000, "collate")
        if number == 0:
            copied[program.rank] = _uploaded(program, times)
        needed = (copied[program.rank],)
        copied[program.rank] = _uploaded(program, times)
        reduced = -1
        for _ in range(16):
            with program.range("aten::linear", "operator", SHAPES):
                program.host(12_000)
                made = program.kernel("gemm", 500_000, after=needed)
            needed = ()
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults, ends_synced=False)


def _uploaded(program: Program, times: float) -> int:
    with program.range("aten::to", "operator"):
        return program.copy("HtoD", 300_000_000, round(6_000_000 * times), stream=COPY_STREAM)


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

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def latents(ranks: int = 4, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Diffusion on latents that were made before; a rank without them (`encode`) encodes its pictures each time."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        ns = time_ns(faults, "encode", program.rank, number)
        with program.range("encode"):
            for _ in range(8 if ns else 0):
                layer_of(
                    program,
                    "aten::cudnn_convolution",
                    "vae_conv",
                    ns // 8,
                    14_000,
                    "[[4, 128, 512, 512], [128, 128, 3, 3]]",
                )
        for _ in range(7):
            layer_of(program, "aten::linear", "unet_forward", 350_000, 14_000, WIDE_SHAPES)
        for _ in range(7):
            made = layer_of(program, "aten::linear_backward", "unet_backward", 700_000, 14_000, WIDE_SHAPES)
            made = program.collective("all_reduce", world, 9_000_000, 260_000, after=(made,))
        optimizer(program, (made,))
        layer_of(program, "aten::_foreach_lerp_", "ema", 150_000, 20_000, "")

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def gathered_from_host(ranks: int = 4, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Features lie in the host's memory, and a kernel of the GPU gathers them over the bus; `bus`: a rank's takes longer."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        with program.range("sample_neighbors"):
            for _ in range(3):
                layer_of(program, "quiver::sample_neighbor", "sample_kernel", 120_000, 20_000, "[[8192]]")
        gather_ns = 2_400_000 + time_ns(faults, "bus", program.rank, number)
        layer_of(program, "quiver::gather", "quiver_tensor_gather", gather_ns, 14_000, "[[400000, 256], [120000]]")
        for layer in range(6):
            layer_of(program, "aten::addmm", "sage_gemm", 220_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(6):
            made = layer_of(program, "aten::mm", "sage_gemm_backward", 440_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 4_000_000, 110_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def encoded(encoders: int = 2, models: int = 4, steps: int = 5, faults: Faults = (), *, encode_ns: int = 5_000_000,
            noise: Noise | None = None) -> Job:  # fmt: skip
    """Some ranks encode pictures and send them to those that train a model on them, each its share, a step ahead.

    `pictures`: what an encoder's batch takes more.
    """
    many = models // encoders
    world, learners = (
        Group("0", tuple(range(encoders + models))),
        Group("1", tuple(range(encoders, encoders + models)), "dp"),
    )

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        if program.rank < encoders:
            ns = encode_ns + time_ns(faults, "pictures", program.rank, number)
            with program.range("encode"):
                for _ in range(10):
                    made = layer_of(program, "aten::cudnn_convolution", "vit_gemm", ns // 10, 14_000, WIDE_SHAPES)
            for place in range(many):
                program.exchange(
                    world, 4_000_000, 80_000, sends=(encoders + many * program.rank + place,), after=(made,)
                )
            return
        got = program.exchange(world, 4_000_000, 80_000, receives=((program.rank - encoders) // many,))
        for layer in range(10):
            made = after_of(program, "aten::linear", "model_gemm", 600_000, (got,) if not layer else ())
            if layer == 1:
                strike(program, faults, number)
            made = program.collective(
                "all_reduce", learners, 6_000_000, 150_000, stream=COMM_STREAM + 1, after=(program.launched - 1,)
            )
        optimizer(program, (made,))

    return noisy_job(encoders + models, steps, step, (world, learners), faults, noise)
