"""Jobs whose gradients add up over several micro-batches before the optimizer steps."""

from tests.simulator.faults import Faults, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program, adjacent, strided
from tests.simulator.workloads import (
    SHAPES,
    WIDE_SHAPES,
    job_of,
    layer_of,
    linear_after,
    noisy_job,
    optimizer,
)


def accumulating(ranks: int = 4, steps: int = 4, faults: Faults = (), *, micro: int = 4) -> Job:
    """Gradients of several micro-steps, reduced in the last."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for place in range(micro):
            for layer in range(8):
                name = "forward_gemm" if layer < 4 else "backward_gemm"
                made = layer_of(program, "aten::linear", name, 300_000, 15_000)
                if place == 1 and layer == 1:
                    strike(program, faults, number)
                if place == micro - 1 and layer >= 4:
                    reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def late_last_microbatch(ranks: int = 4, steps: int = 5, faults: Faults = (), *, micro: int = 4) -> Job:
    """Accumulates gradients; the fault strikes in the last microbatch, while its gradients are exchanged."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for place in range(micro):
            for layer in range(8):
                name = "forward_gemm" if layer < 4 else "backward_gemm"
                made = layer_of(program, "aten::linear", name, 300_000, 15_000, SHAPES)
                if place == micro - 1 and layer == 5:
                    strike(program, faults, number)
                    made = program.launched - 1
                if place == micro - 1 and layer >= 4:
                    reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def redundant_exchanges(ranks: int = 4, steps: int = 4, faults: Faults = (), *, micro: int = 4,
                        optimizers: int = 1) -> Job:  # fmt: skip
    """Accumulates gradients and exchanges all of them in every microbatch; several optimizers update the model."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for _ in range(micro):
            with program.range("forward"):
                for _ in range(3):
                    layer_of(program, "aten::linear", "forward_gemm", 250_000, 12_000, SHAPES)
            with program.range("backward"):
                for layer in range(3):
                    made = layer_of(program, "aten::linear", "backward_gemm", 250_000, 12_000, SHAPES)
                    reduced = program.collective("all_reduce", world, 4_000_000 + layer, 900_000, after=(made,))
        for _ in range(optimizers):
            optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def accumulated_in_turn(ranks: int = 4, steps: int = 5, faults: Faults = (), *, extra_ns: int = 2_000_000,
                        is_synced: bool = True) -> Job:  # fmt: skip
    """In microbatch k rank k computes longer; the next one waits for each one's exchange, or the last alone has one."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        made = 0
        for micro in range(ranks):
            with program.range(f"micro_{micro}"):
                for layer in range(4):
                    with program.range("aten::linear", "operator", SHAPES):
                        program.host(12_000)
                        made = program.kernel("gemm", 400_000, after=(made,) if micro else ())
                    if layer == 1 and micro == program.rank:
                        made = layer_of(
                            program, "aten::mm", "extra_gemm", extra_ns, 5_000, "[[8192, 8192], [8192, 8192]]"
                        )
                if is_synced or micro == ranks - 1:
                    made = program.collective("all_reduce", world, 4_000_000, 200_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def uneven_accumulation(ranks: int = 4, steps: int = 4, faults: Faults = (), *, micro: int = 4) -> Job:
    """Accumulates gradients; a rank with the fault `micro` has one microbatch more than the others."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        has_more = hit(faults, "micro", program.rank, number)
        load(program, faults, number)
        made = -1
        for _ in range(micro + has_more):
            for _ in range(5):
                layer_of(program, "aten::linear", "forward_gemm", 200_000, 12_000, SHAPES)
            for _ in range(5):
                made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000, 12_000, SHAPES)
        for _ in range(4):
            made = program.collective("all_reduce", world, 8_000_000, 200_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def accumulated(tensor: int = 2, data: int = 2, steps: int = 4, faults: Faults = (), *, micro: int = 4) -> Job:
    """Accumulates gradients in tensor x data parallel; groups with the fault `sync` reduce in every micro-step."""
    rows = adjacent("tp", tensor, data)
    columns = strided("dp", data, tensor)

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        load(program, faults, number)
        reduced: tuple[int, ...] = ()
        for each in range(micro):
            for layer in range(4):
                made = linear_after(program, "forward_gemm" if layer < 2 else "backward_gemm", 400_000, reduced)
                reduced = (program.collective("all_reduce", row, 1_000_000, 40_000, after=(made,)),)
            if each == micro - 1 or hit(faults, "sync", program.rank, number):
                last = program.collective(
                    "all_reduce", column, 60_000_000, 900_000, stream=COMM_STREAM + 1, after=reduced
                )
                reduced = (last,)
        optimizer(program, reduced)

    return job_of(tensor * data, steps, step, (*rows, *columns), faults)


def micro_steps(ranks: int = 8, steps: int = 4, faults: Faults = (), *, micro: int = 4, writes: bool = False,
                noise: Noise | None = None) -> Job:  # fmt: skip
    """Gradients are exchanged in the last micro-step alone. `bus`: what a rank's copies of the micro-batches take more.

    With `writes` a thread of every host writes a checkpoint meanwhile; `snapshot`: a rank's state is copied out beside.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        bus_ns = time_ns(faults, "bus", program.rank, number) // micro
        if hit(faults, "snapshot", program.rank, number):
            program.copy("DtoH", 400 << 20, 8_000_000, stream=COPY_STREAM + 2)
        if writes or hit(faults, "snapshot", program.rank, number):
            program.aside(12_000_000, "async_ckpt.py(44): write")
        for part in range(micro):
            load(program, faults, number)
            with program.range("aten::to", "operator"):
                program.copy("HtoD", 6 << 20, 150_000 + bus_ns, stream=COMPUTE_STREAM)
            for layer in range(5):
                layer_of(program, "aten::linear", "forward_gemm", 200_000, 14_000, WIDE_SHAPES)
                if layer == 1 and part == 2:
                    strike(program, faults, number)
            for _ in range(5):
                made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000, 14_000, WIDE_SHAPES)
                if part == micro - 1:
                    made = program.collective("all_reduce", world, 9_000_000, 220_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
