"""Jobs that run out of GPU memory, and what is copied to hosts and disks and back."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.workloads import SHAPES, WIDE_SHAPES, after_of, job_of, layer_of, noisy_job, optimizer


def refilled(ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 9) -> Job:
    """Data parallel; a rank with the fault `retry` finds its memory full three times a step: frees, then allocates anew."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        each_ns = time_ns(faults, "retry", program.rank, number) // 3
        load(program, faults, number)
        reduced = -1
        for layer in range(layers):
            with program.range("aten::linear", "operator", SHAPES):
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


def starved(ranks: int = 4, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """`retries`: a rank's memory is full: in three layers of each step it waits for its GPU, frees and allocates anew."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        retry_ns = time_ns(faults, "retries", program.rank, number) // 3
        for layer in range(16):
            gathered = program.collective("all_gather", world, 8_000_000, 70_000)
            with program.range("aten::linear", "operator", WIDE_SHAPES):
                program.host(14_000)
                if retry_ns and layer in (4, 8, 12):
                    program.sync("cudaDeviceSynchronize")
                    for _ in range(4):
                        program.host(retry_ns // 8, "cudaFree", "call")
                    for _ in range(2):
                        program.host(retry_ns // 4, "cudaMalloc", "call")
                made = program.kernel("gemm", 450_000, after=(gathered,))
            if layer >= 8:
                made = program.collective("reduce_scatter", world, 8_000_000, 80_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def emptied(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 12, is_sharded: bool = False,
            noise: Noise | None = None) -> Job:  # fmt: skip
    """Data parallel or sharded; `empty`: ranks call empty_cache() at each step's end: it waits, frees, and all is allocated anew."""
    world = Group("0", tuple(range(ranks)), "fsdp" if is_sharded else "dp")

    def step(program: Program, number: int) -> None:
        cache_ns = time_ns(faults, "empty", program.rank, number)
        load(program, tuple(fault for fault in faults if fault.what != "empty"), number)
        after: tuple[int, ...] = ()
        for layer in range(2 * layers):
            if is_sharded:
                after = (program.collective("all_gather", world, 8_000_000, 90_000),)
            with program.range("aten::linear" if layer < layers else "aten::linear_backward", "operator", WIDE_SHAPES):
                program.host(14_000)
                if cache_ns and number and layer < layers:
                    program.host(cache_ns // (2 * layers), "cudaMalloc", "call")
                made = program.kernel("gemm", 300_000 if layer < layers else 500_000, after=after)
            if layer == 1:
                strike(program, faults, number)
            if layer >= layers:
                made = program.collective("reduce_scatter" if is_sharded else "all_reduce", world, 8_000_000, 150_000,
                                          stream=COMM_STREAM + 1, after=(made,))  # fmt: skip
        optimizer(program, (made,))
        if cache_ns:
            with program.range("train.py(91): empty_cache", "frame"):
                program.sync("cudaFree")
                for _ in range(10):
                    program.host(cache_ns // 20, "cudaFree", "call")

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def offloads_activations(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 6) -> Job:
    """Data parallel; a rank with the fault `copy` sends its activations to the host and back in every layer."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        copy_ns = time_ns(faults, "copy", program.rank, number) // (2 * layers)
        load(program, tuple(fault for fault in faults if fault.what != "copy"), number)
        reduced = -1
        for layer in range(2 * layers):
            needed: tuple[int, ...] = ()
            if copy_ns and layer >= layers:
                needed = (program.copy("HtoD", 16 << 20, copy_ns // 2),)
            name = "forward_gemm" if layer < layers else "backward_gemm"
            with program.range("aten::linear", "operator", SHAPES):
                program.host(15_000)
                made = program.kernel(name, 300_000, after=needed)
            if copy_ns and layer < layers:
                made = program.copy("DtoH", 32 << 20, copy_ns, stream=COMPUTE_STREAM, after=(made,))
            if layer >= layers:
                reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def swapped(ranks: int = 4, steps: int = 4, faults: Faults = (), *, groups: int = 5, read_ns: int = 500_000,
            noise: Noise | None = None) -> Job:  # fmt: skip
    """Parameters lie on disks: each host reads its part of a group of layers, copies it up, and all gather. `disk`: a rank's is slower."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        more_ns = time_ns(faults, "disk", program.rank, number) // (2 * groups)
        for part in range(2 * groups):
            with program.range("swap_in"):
                program.host(read_ns + more_ns, "partitioned_param_swapper.py(230): synchronize_reads", "frame")
                up = program.copy("HtoD", 8 << 20, 180_000)
            gathered = program.collective("all_gather", world, 16_000_000, 200_000, after=(up,))
            for place in range(2):
                made = after_of(program, "aten::linear" if part < groups else "aten::linear_backward", "gemm",
                                450_000 if part < groups else 900_000, (gathered,) if not place else ())  # fmt: skip
            if part == 1:
                strike(program, faults, number)
            if part >= groups:
                made = program.collective(
                    "reduce_scatter", world, 16_000_000, 220_000, stream=COMM_STREAM + 1, after=(made,)
                )
                program.copy("DtoH", 8 << 20, 180_000, stream=COPY_STREAM + 1, after=(made,))
        program.sync("cudaStreamSynchronize", after=(program.launched - 1,))

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def checkpointed(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """A checkpoint is copied out in the background of a step (`copy`), and all-reduces take as much longer (`link`)."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, (), number)
        copy_ns, slow_ns = (time_ns(faults, what, program.rank, number) for what in ("copy", "link"))
        if copy_ns:
            program.copy("DtoH", 256 << 20, copy_ns, stream=COPY_STREAM + 2)
        reduced = -1
        for _ in range(10):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 12_000, SHAPES)
            reduced = program.collective("all_reduce", world, 40_000_000, 380_000 + slow_ns // 10, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), ())
