"""Jobs whose hosts wait for their GPUs: numbers read, losses printed, norms clipped, collectives waited for."""

from contextlib import nullcontext

from tests.simulator.faults import Faults, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import SHAPES, WIDE_BACK_SHAPES, WIDE_SHAPES, job_of, layer_of, noisy_job, optimizer


def reading(ranks: int = 4, steps: int = 5, *, layers: int = 30) -> Job:
    """Tensor parallel; every rank reads a number after each layer, and its host goes on only then."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        load(program, (), number)
        for _ in range(layers):
            made = layer_of(program, "aten::linear", "gemm", 180_000, 15_000, SHAPES)
            made = program.collective("all_reduce", world, 1_000_000, 30_000, after=(made,))
            with program.range("aten::item", "operator"), program.range("aten::_local_scalar_dense", "operator"):
                program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM, after=(made,))
                program.sync("cudaStreamSynchronize")
            program.host(60_000, "router.py(41): choose", "frame")
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,))


def between_short_kernels(ranks: int = 2, steps: int = 5, faults: Faults = (), *, blocks: int = 6) -> Job:
    """Data parallel: a load of 0.6 ms, blocks of ten short kernels and a long one; hosts wait after each (`read`)."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        with program.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            program.host(600_000)
        last = -1
        for _ in range(blocks):
            for _ in range(10):
                program.host(30_000, "aten::add")
                program.kernel("add", 10_000)
            last = program.kernel("gemm", 1_000_000)
            if hit(faults, "read", program.rank, number):
                program.sync("cudaStreamSynchronize")
            program.collective("all_reduce", world, 1000, 100_000, after=(last,))
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults, ends_synced=False)


def masking(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 10) -> Job:
    """Data parallel; a host with the fault `nonzero` reads the size of a mask in each layer and works on it."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        each_ns = time_ns(faults, "nonzero", program.rank, number) // layers
        load(program, faults, number)
        reduced = -1
        for _ in range(layers):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 15_000, SHAPES)
            if each_ns:
                with program.range("aten::nonzero", "operator", "[[4096, 768]]"):
                    program.kernel("nonzero_kernel", 8_000)
                    program.sync("cudaStreamSynchronize")
                    program.host(each_ns, "aten::empty")
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def loss_on_cpu(ranks: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Data parallel; a rank copies its logits to the host and gradients back (`logits`), and computes the loss there (`loss`)."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        loss_ns, each_ns = (
            time_ns(faults, what, program.rank, number) // by for what, by in (("loss", 1), ("logits", 2))
        )
        load(program, faults, number)
        for _ in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 250_000, 15_000, SHAPES)
        if loss_ns or each_ns:
            with program.range("aten::to", "operator"):
                program.copy("DtoH", 64 << 20, each_ns, stream=COMPUTE_STREAM, memory="Pageable")
                program.sync("cudaStreamSynchronize")
            with program.range("aten::log_softmax", "operator", "[[4096, 50257]]"):
                program.host(loss_ns, "aten::_log_softmax")
            with program.range("aten::to", "operator"):
                program.copy("HtoD", 64 << 20, each_ns, stream=COMPUTE_STREAM, memory="Pageable")
                program.sync("cudaStreamSynchronize")
        else:
            layer_of(program, "aten::log_softmax", "softmax_kernel", 100_000, 15_000, "[[4096, 50257]]")
        reduced = -1
        for _ in range(8):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 500_000, 15_000, SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def clipped(
    ranks: int = 4, steps: int = 4, faults: Faults = (), *, parameters: int = 80, noise: Noise | None = None
) -> Job:
    """Gradients are clipped by a norm that is read of each parameter."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(16):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
            if layer >= 8:
                made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        program.kernel("unscale", 20_000, after=(made,))
        with program.range("clip_grad_norm"):
            for _ in range(parameters):
                layer_of(program, "aten::linalg_vector_norm", "reduce_kernel", 6_000, 12_000, "[[2048, 2048]]")
                with program.range("aten::item", "operator"):
                    program.host(6_000)
                    program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
                    program.sync("cudaStreamSynchronize")
        optimizer(program, ())

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def recurrent(
    ranks: int = 4, steps: int = 4, faults: Faults = (), *, times: int = 40, noise: Noise | None = None
) -> Job:
    """A recurrent cell step by step, whose host looks at each step whether to go on."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for time in range(times):
            layer_of(program, "aten::addmm", "cell_gemm", 60_000, 14_000, "[[64, 1024], [1024, 4096]]")
            layer_of(program, "aten::sigmoid", "sigmoid_kernel", 6_000, 9_000, "[[64, 4096]]")
            if time == 1:
                strike(program, faults, number)
            with program.range("aten::item", "operator"):
                program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize", after=(program.launched - 1,))
        for _ in range(8):
            made = layer_of(program, "aten::mm", "backward_gemm", 260_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 4_000_000, 110_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def reads_once(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, small: int = 120, noise: Noise | None = None
) -> Job:
    """Large products, then many small kernels, launched ahead; with the fault `one` a rank reads a number between them."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(12):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 14_000, WIDE_SHAPES)
        if hit(faults, "one", program.rank, number):
            with program.range("nn.Module: Router_0", "frame"), program.range("aten::item", "operator"):
                program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize")
        for place in range(small):
            made = layer_of(program, f"aten::small{place % 3}", f"small_{place % 3}", 7_000, 24_000, WIDE_SHAPES)
        for _ in range(6):
            made = program.collective("all_reduce", world, 6_000_000, 150_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def logging(ranks: int = 4, steps: int = 6, faults: Faults = (), *, every: int = 2) -> Job:
    """Data parallel that reads its loss on every rank now and then."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(10):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 15_000)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        if number % every == 0:
            with program.range("aten::item", "operator"):
                program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize", after=(program.launched - 1,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def logged(ranks: int = 4, steps: int = 7, faults: Faults = (), *, every: int = 3, log_ns: int = 5_000_000,
           noise: Noise | None = None) -> Job:  # fmt: skip
    """Every so many steps every rank reads its loss and writes a line."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(14):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
            made = program.collective("all_reduce", world, 4_000_000, 110_000, after=(made,))
        optimizer(program, (made,))
        with program.range("log") if number % every == 0 else nullcontext():
            if number % every == 0:
                with program.range("aten::item", "operator"):
                    program.sync("cudaStreamSynchronize")
                program.host(log_ns, "train.py(140): write_line", "frame")

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def blocking(ranks: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Every host waits for each collective that it launched before it goes on."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(16):
            made = layer_of(program, "aten::linear", "gemm", 200_000, 60_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 2_000_000, 80_000, after=(made, program.launched - 1))
            program.sync("cudaStreamSynchronize", after=(reduced,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)
