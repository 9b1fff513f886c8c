"""Jobs that were written down, with their truth, before any report of one was seen: late by what a host does."""

from tests.simulator.blind_jobs import factor
from tests.simulator.faults import Faults, load, time_ns
from tests.simulator.program import COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, optimizer

_SHAPES = "[[4096, 768], [768, 768]]"


def reading(ranks: int = 4, steps: int = 5, *, layers: int = 30) -> Job:
    """Tensor parallel; every rank reads a number after each layer, and its host goes on only then."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        load(program, (), number)
        for _ in range(layers):
            made = layer_of(program, "aten::linear", "gemm", 180_000, 15_000, _SHAPES)
            made = program.collective("all_reduce", world, 1_000_000, 30_000, after=(made,))
            with program.range("aten::item", "operator"), program.range("aten::_local_scalar_dense", "operator"):
                program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM, after=(made,))
                program.sync("cudaStreamSynchronize")
            program.host(60_000, "router.py(41): choose", "frame")
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,))


def masking(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 10) -> Job:
    """Data parallel; a host with the fault `nonzero` reads the size of a mask in each layer and works on it."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        each_ns = time_ns(faults, "nonzero", program.rank, number) // layers
        load(program, faults, number)
        reduced = -1
        for _ in range(layers):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 15_000, _SHAPES)
            if each_ns:
                with program.range("aten::nonzero", "operator", "[[4096, 768]]"):
                    program.kernel("nonzero_kernel", 8_000)
                    program.sync("cudaStreamSynchronize")
                    program.host(each_ns, "aten::empty")
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def held(ranks: int = 4, steps: int = 5, faults: Faults = (), *, times: int = 4) -> Job:
    """Tensor parallel with Python's stacks; on a rank another thread decodes and holds the interpreter meanwhile (`gil`)."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        each_ns = time_ns(faults, "gil", program.rank, number) // times
        load(program, faults, number)
        for layer in range(24):
            with program.range("nn.Module: Linear_0", "frame"):
                if each_ns and layer % (24 // times) == 2:
                    program.aside(each_ns, "prefetch.py(41): decode")
                    program.host(each_ns, "linear.py(125): forward", "frame")
                made = layer_of(program, "aten::linear", "gemm", 110_000, 20_000, _SHAPES)
            reduced = program.collective("all_reduce", world, 1_000_000, 25_000, after=(made,))
            program.kernel("residual", 8_000, after=(reduced,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def pinned(ranks: int = 8, steps: int = 5, faults: Faults = (), *, kernels: int = 200) -> Job:
    """Tensor parallel with small kernels; a process with the fault `pinned` shares its core: all its host work is slower."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        times = factor(faults, "pinned", program.rank, number)
        load(program, faults, number)
        for place in range(kernels):
            made = layer_of(
                program, f"aten::op{place % 5}", f"small_{place % 5}", 10_000, round(14_000 * times), _SHAPES
            )
            if place % 20 == 19:
                reduced = program.collective("all_reduce", world, 200_000, 15_000, after=(made,))
                program.kernel("residual", 4_000, after=(reduced,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def retried(ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 9) -> Job:
    """Data parallel; a rank with the fault `retry` finds its memory full three times a step: frees, then allocates anew."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        each_ns = time_ns(faults, "retry", program.rank, number) // 3
        load(program, faults, number)
        reduced = -1
        for layer in range(layers):
            with program.range("aten::linear", "operator", _SHAPES):
                program.host(15_000)
                if each_ns and layer % 3 == 1:
                    with program.range("aten::empty", "operator"):
                        program.host(40_000, "cudaMalloc", "call")
                        program.sync("cudaDeviceSynchronize")
                        for _ in range(4):
                            program.host(each_ns // 6, "cudaFree", "call")
                        program.host(each_ns // 3, "cudaMalloc", "call")
                made = program.kernel("gemm", 500_000)
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
            layer_of(program, "aten::linear", "forward_gemm", 250_000, 15_000, _SHAPES)
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
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 500_000, 15_000, _SHAPES)
            reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def graphed(ranks: int = 4, steps: int = 6, faults: Faults = (), *, kernels: int = 160) -> Job:
    """Data parallel in CUDA graphs, one forward and one backward; a rank with the fault `eager` launches every kernel."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        is_eager = any(fault.what == "eager" and fault.hits(program.rank, number) for fault in faults)
        load(program, faults, number)
        made = -1
        for part in ("forward", "backward"):
            names = [(f"{part}_kernel_{place % 4}", 14_000) for place in range(kernels)]
            if not is_eager:
                program.host(30_000, "graphs.py(88): replay", "frame")
                made = program.graph(names)
                continue
            for name, ns in names:
                made = layer_of(program, f"aten::{name[-8:]}", name, ns, 20_000, _SHAPES)
        for _ in range(4):
            made = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)
