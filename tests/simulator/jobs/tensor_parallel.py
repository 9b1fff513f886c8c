"""Jobs whose ranks share each layer: sequences in parts, products by chunks, small collectives in every layer."""

from tests.simulator.faults import Faults, hit, load, strike
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import (
    SHAPES,
    after_of,
    job_of,
    layer_of,
    noisy_job,
    optimizer,
)


def sequence_parallel(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 6) -> Job:
    """Tensor parallel with sequences in parts: gathered before each layer, scattered after it."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(2 * layers):
            gathered = program.collective("all_gather", world, 4_000_000, 80_000, after=needed)
            with program.range("aten::mm", "operator", SHAPES):
                program.host(12_000)
                made = program.kernel("gemm", 300_000, after=(gathered,))
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            needed = (program.collective("reduce_scatter", world, 4_000_000, 80_000, after=(made,)),)
        optimizer(program, needed)

    return job_of(ranks, steps, step, (world,), faults)


def precise(tensor: int = 2, data: int = 4, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Tensor within data parallel; a rank with the fault `wide` makes one in three products in 32 bits, by another kernel."""
    rows = adjacent("tp", tensor, data)
    columns = strided("dp", data, tensor)

    def step(program: Program, number: int) -> None:
        is_wide = hit(faults, "wide", program.rank, number)
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        load(program, faults, number)
        for layer in range(15):
            name, ns = (
                ("ampere_sgemm_128x64", 500_000) if is_wide and layer % 3 == 0 else ("nvjet_hsh_128x256", 200_000)
            )
            made = after_of(program, "aten::mm", name, ns, (program.launched - 1,))
            if layer == 1:
                strike(program, faults, number)
            made = program.collective("all_reduce", row, 2_000_000, 40_000, after=(program.launched - 1,))
            after_of(program, "aten::add", "add_kernel", 12_000, (made,), 7_000)
        made = program.collective(
            "all_reduce", column, 24_000_000, 300_000, stream=COMM_STREAM + 1, after=(program.launched - 1,)
        )
        optimizer(program, (made,))

    return noisy_job(tensor * data, steps, step, (*rows, *columns), faults, noise)


def many_scales(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 48) -> Job:
    """Tensor parallel in eight bits: a small all-reduce of the largest value before each product."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            layer_of(program, "aten::amax", "reduce_kernel", 12_000, 6_000)
            largest = program.collective("all_reduce", world, 8, 16_000, after=(program.launched - 1,))
            with program.range("aten::_scaled_mm", "operator", SHAPES):
                program.host(10_000)
                made = program.kernel("nvjet_qqtst_128x128", 90_000, after=(largest,))
            if layer % 2:
                reduced = program.collective("all_reduce", world, 2_000_000, 35_000, after=(made,))
                program.kernel("residual", 8_000, after=(reduced,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)
