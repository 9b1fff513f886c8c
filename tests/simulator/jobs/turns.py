"""Jobs whose hosts do in a loop what could be done once for all: tensor by tensor, sample by sample, mask by mask."""

from collections.abc import Callable

from tests.simulator.faults import Faults, hit, load
from tests.simulator.program import Group, Job, Program
from tests.simulator.workloads import SHAPES, job_of, layer_of, optimizer

_HOST_NS = 22_000
"""What a call takes the host, Python around it included."""

_SHORT_NS = 2_500


def _job(ranks: int, steps: int, faults: Faults, turns: int, turn: Callable[[Program, int, int], None]) -> Job:
    """Some products, so many turns with the fault `loop`, else one of as much work; gradients, an optimizer."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(4):
            made = layer_of(program, "aten::linear", "gemm", 250_000, 15_000, SHAPES)
        if hit(faults, "loop", program.rank, number):
            for place in range(turns):
                turn(program, place, 1)
        else:
            turn(program, 0, turns)
        made = program.collective("all_reduce", world, 2_000_000, 60_000, after=(program.launched - 1, made))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def averaged(ranks: int = 2, steps: int = 4, faults: Faults = (), *, parameters: int = 150) -> Job:
    """An average of the weights is kept, parameter by parameter; they have many sizes."""

    def turn(program: Program, place: int, times: int) -> None:
        with program.range("update_average"):
            for name in ("aten::mul_", "aten::add_"):
                with program.range(name, "operator"):
                    program.host(_HOST_NS)
                    program.kernel(f"elementwise_{name[6:]}", times * _SHORT_NS, blocks=8 * (1 + place % 5))

    return _job(ranks, steps, faults, parameters, turn)


def augmented(ranks: int = 2, steps: int = 4, faults: Faults = (), *, samples: int = 48) -> Job:
    """Pictures are turned, cropped and normalised on the GPU, one after the other; all are of one size."""

    def turn(program: Program, _place: int, times: int) -> None:
        for name in ("flip", "pad", "sub", "div", "copy_"):
            with program.range(f"aten::{name}", "operator", "[[3, 224, 224]]"):
                program.host(_HOST_NS)
                program.kernel(f"{name}_kernel", times * _SHORT_NS)

    return _job(ranks, steps, faults, samples, turn)


def picked(ranks: int = 2, steps: int = 4, faults: Faults = (), *, classes: int = 30) -> Job:
    """The loss of each class is that of the rows that a boolean mask picks: the host asks the GPU how many they are."""

    def turn(program: Program, _place: int, times: int) -> None:
        with program.range("aten::nonzero", "operator", "[[4096]]"):
            program.host(_HOST_NS)
            program.kernel("DeviceSelectSweepKernel", times * _SHORT_NS)
            copied = program.copy("DtoH", 8, 1_500, stream=7)
            program.sync("cudaStreamSynchronize", after=(copied,))
        for name in ("index", "sum", "add_"):
            with program.range(f"aten::{name}", "operator", "[[4096, 256]]"):
                program.host(_HOST_NS)
                program.kernel(f"{name}_kernel", times * _SHORT_NS)

    return _job(ranks, steps, faults, classes, turn)
