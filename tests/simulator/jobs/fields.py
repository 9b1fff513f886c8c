"""Simulations of fields on grids: halos exchanged with neighbours, grids transposed for Fourier transforms."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import after_of, noisy_job


def halos(columns: int = 4, rows: int = 2, steps: int = 5, faults: Faults = (), *, rounds: int = 6,
          noise: Noise | None = None) -> Job:  # fmt: skip
    """Ranks are a sheet: edges go to two to four neighbours while the inside is computed; a residual is read at the end.

    `cells`: a rank's part has more of them, by what its kernels take longer; `card`: what each of a rank's messages takes
    more, and with it the kernel that holds those of all neighbours.
    """
    ranks = columns * rows
    world = Group("0", tuple(range(ranks)), "sheet")

    def beside(rank: int) -> tuple[int, ...]:
        row, column = divmod(rank, columns)
        near = ((row, column - 1), (row, column + 1), (row - 1, column), (row + 1, column))
        return tuple(r * columns + c for r, c in near if 0 <= r < rows and 0 <= c < columns)

    def step(program: Program, number: int) -> None:
        more_ns = time_ns(faults, "cells", program.rank, number) // rounds
        near = beside(program.rank)
        slow_ns = max(time_ns(faults, "card", rank, number) for rank in (program.rank, *near)) // rounds
        shapes = f"[[{4096 + 4096 * more_ns // 700_000}, 4096]]"
        got: tuple[int, ...] = ()
        load(program, (), number)
        for place in range(rounds):
            edge = after_of(program, "stencil::edge", "stencil_edge_kernel", 90_000, got, 9_000, "[[4096, 4]]")
            got = (program.exchange(world, 400_000, 110_000 + slow_ns, sends=near, receives=near, after=(edge,)),)
            after_of(program, "stencil::inside", "stencil_inside_kernel", 700_000 + more_ns, (), 9_000, shapes)
            if place == 1:
                strike(program, faults, number)
        norm = after_of(program, "aten::linalg_vector_norm", "norm_kernel", 60_000, got, 8_000, "[[16777216]]")
        norm = program.collective("all_reduce", world, 1, 15_000, stream=COMM_STREAM + 1, after=(norm,))
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM, after=(norm,))
            program.sync("cudaStreamSynchronize", after=(program.launched - 1,))

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def transposed(rows: int = 2, columns: int = 4, steps: int = 5, faults: Faults = (), *, rounds: int = 4,
               noise: Noise | None = None) -> Job:  # fmt: skip
    """Pencils of a cube: transforms along an axis, all-to-alls in rows and in columns between them. `row`: a row's take longer."""
    lines, strips = adjacent("row", columns, rows), strided("column", rows, columns)

    def step(program: Program, number: int) -> None:
        line, strip = lines[program.rank // columns], strips[program.rank % columns]
        slow_ns = time_ns(faults, "row", program.rank, number) // (2 * rounds)
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for place in range(rounds):
            for group, ns in ((line, 150_000 + slow_ns), (strip, 180_000)):
                after_of(program, "aten::_fft_c2c", "regular_fft_kernel", 320_000, needed, 9_000, "[[256, 256, 128]]")
                made = after_of(program, "aten::mul", "vectorized_mul", 60_000, (), 8_000, "[[256, 256, 128]]")
                needed = (program.collective("all_to_all", group, 8_000_000, ns, after=(made,)),)
            if place == 1:
                strike(program, faults, number)
        after_of(program, "aten::_fft_c2c", "regular_fft_kernel", 320_000, needed, 9_000, "[[256, 256, 128]]")

    return noisy_job(rows * columns, steps, step, (*lines, *strips), faults, noise)
