"""Jobs whose hosts launch more slowly than their GPUs compute, and CUDA graphs, which launch for them."""

from tests.simulator.faults import Faults, factor, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import SHAPES, WIDE_SHAPES, job_of, layer_of, noisy_job, optimizer


def slow_at_all(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, kernels: int = 120, times: float = 2.0, more: float = 1.0
) -> Job:
    """Kernels of which hosts launch one after the other; a host that the fault `host` names takes longer for each.

    So it is where another thread holds Python's lock, other processes take the cores, or a rank is recorded with stacks.
    It launches `more` times as many, as where one rank keeps an average of its weights.
    """
    world = Group("0", tuple(range(ranks)))
    slow = {rank for fault in faults for rank in fault.ranks if fault.what == "host"}

    def step(program: Program, number: int) -> None:
        load(program, (), number)
        is_slow = program.rank in slow
        each_ns = round(20_000 * (times if is_slow else 1.0))
        for _ in range(round(kernels * (more if is_slow else 1.0))):
            with program.range("aten::add", "operator", SHAPES):
                program.host(each_ns)
                made = program.kernel("elementwise_kernel", 12_000)
        reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), ())


def small_kernels(ranks: int = 4, steps: int = 4, faults: Faults = (), *, kernels: int = 300) -> Job:
    """Kernels that end before the next one is launched."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for place in range(kernels):
            with program.range("aten::add", "operator"):
                program.host(9_000)
                made = program.kernel("elementwise_kernel", 3_000)
            if place == 1:
                strike(program, faults, number)
        reduced = program.collective("all_reduce", world, 400_000, 40_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def small_ones(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 24, noise: Noise | None = None
) -> Job:
    """Tensor parallel whose kernels are shorter than their launches; the loss is read at the step's end."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            for name in ("norm", "mul", "add"):
                layer_of(program, f"aten::{name}", f"{name}_kernel", 6_000, 13_000, WIDE_SHAPES)
            made = layer_of(program, "aten::linear", "gemm", 20_000, 16_000, WIDE_SHAPES)
            program.collective("all_reduce", world, 300_000, 18_000, stream=COMPUTE_STREAM, after=(made,))
            if layer == 1:
                strike(program, faults, number)
        optimizer(program, ())
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize")

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def pinned(ranks: int = 8, steps: int = 5, faults: Faults = (), *, kernels: int = 200) -> Job:
    """Tensor parallel with small kernels; a process with the fault `pinned` shares its core: all its host work is slower."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        times = factor(faults, "pinned", program.rank, number)
        load(program, faults, number)
        for place in range(kernels):
            made = layer_of(
                program, f"aten::op{place % 5}", f"small_{place % 5}", 10_000, round(14_000 * times), SHAPES
            )
            if place % 20 == 19:
                reduced = program.collective("all_reduce", world, 200_000, 15_000, after=(made,))
                program.kernel("residual", 4_000, after=(reduced,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def adapted(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 30, noise: Noise | None = None
) -> Job:
    """Adapters on a small model: hosts launch more slowly than GPUs compute; the loss is read in each step."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(2 * layers):
            for operator, ns in (
                ("aten::linear", 9_000),
                ("aten::mm", 4_000),
                ("aten::mul", 3_000),
                ("aten::add", 3_000),
            ):
                made = layer_of(program, operator, f"{operator[6:]}_kernel", ns, 16_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        made = program.collective("all_reduce", world, 300_000, 30_000, after=(made,))
        optimizer(program, (made,))
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize")

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def masked(ranks: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 12) -> Job:
    """Host-bound, one host slower (`slow`, a layer); another rank's GPU also runs a dense mask's kernels (`mask`)."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        host_ns = 400_000 + time_ns(faults, "slow", program.rank, number) // layers
        mask_ns = time_ns(faults, "mask", program.rank, number) // layers
        reduced = -1
        for _ in range(layers):
            with program.range("block"):
                program.host(host_ns, "model.py(12): block", "frame")
            made = layer_of(program, "aten::linear", "gemm", 250_000, 15_000, SHAPES)
            if mask_ns:
                made = layer_of(
                    program, "aten::masked_fill", "masked_fill_kernel", mask_ns, 10_000, "[[8, 1, 4096, 4096]]"
                )
            reduced = program.collective("all_reduce", world, 2_000_000, 60_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def graphed(ranks: int = 4, steps: int = 6, faults: Faults = (), *, kernels: int = 160) -> Job:
    """Data parallel in CUDA graphs, one forward and one backward; a rank with the fault `eager` launches every kernel."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        is_eager = hit(faults, "eager", program.rank, number)
        load(program, faults, number)
        made = -1
        for part in ("forward", "backward"):
            names = [(f"{part}_kernel_{place % 4}", 14_000) for place in range(kernels)]
            if not is_eager:
                program.host(30_000, "graphs.py(88): replay", "frame")
                made = program.graph(names)
                continue
            for name, ns in names:
                made = layer_of(program, f"aten::{name[-8:]}", name, ns, 20_000, SHAPES)
        for _ in range(4):
            made = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def replayed(ranks: int = 4, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Forward and backward are replayed graphs, the gradients are exchanged between them and the optimizer's."""
    world = Group("0", tuple(range(ranks)))
    kernels = [("graphed_gemm", 180_000), ("graphed_gelu", 40_000), ("graphed_norm", 20_000)] * 12

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(2):
            program.host(30_000)
            made = program.graph(kernels)
        strike(program, faults, number)
        for _ in range(4):
            program.host(10_000)
            made = program.collective("all_reduce", world, 16_000_000, 350_000, after=(program.launched - 1,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def partly_graphed(ranks: int = 4, steps: int = 5, faults: Faults = (), *, kernels: int = 120) -> Job:
    """Data parallel in CUDA graphs; ranks with the fault `eager` launch each kernel, fast enough for their GPU."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        names = [(f"kernel_{place % 4}", 30_000) for place in range(kernels)]
        if not hit(faults, "eager", program.rank, number):
            program.host(30_000, "graphs.py(88): replay", "frame")
            made = program.graph(names)
        else:
            for name, ns in names:
                made = layer_of(program, f"aten::{name}", name, ns, 6_000, SHAPES)
        strike(program, faults, number)
        for _ in range(4):
            made = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made, program.launched - 1))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)
