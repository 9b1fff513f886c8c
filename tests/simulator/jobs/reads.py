"""Jobs whose hosts wait for their GPUs: numbers read, losses printed, norms clipped, collectives waited for."""

from tests.simulator.faults import Faults, hit, load, strike, time_ns
from tests.simulator.program import Group, Job, Program
from tests.simulator.workloads import SHAPES, job_of, layer_of, optimizer


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
