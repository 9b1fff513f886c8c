"""Jobs that do something for the first time: compile, set up communicators, load modules, search for kernels."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import Group, Job, Program
from tests.simulator.workloads import SHAPES, job_of, layer_of, noisy_job, optimizer

_PHASES = ("bytecode_tracing", "GraphLowering.run", "Scheduler.codegen", "async_compile.wait")
"""Of a compilation, as Dynamo marks them."""


def compiled(ranks: int = 8, steps: int = 6, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Compiled layers; `compile`: a host compiles again, for new shapes, in the middle of forward, in phases."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(10):
            ns = time_ns(faults, "compile", program.rank, number) if layer == 3 else 0
            with program.range("Torch-Compiled Region: 3/0", "operator"):
                for phase in _PHASES if ns else ():
                    with program.range(f"{phase} (dynamo_timed)"):
                        program.host(ns // len(_PHASES))
                made = layer_of(program, "triton_red_fused_0", "triton_red_fused_0", 450_000, 14_000, "")
                if layer == 1:
                    strike(program, faults, number)
                made = program.collective("all_reduce", world, 6_000_000, 160_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def with_warm_up(ranks: int = 4, steps: int = 6, faults: Faults = (), *, times: float = 6.0) -> Job:
    """Data parallel whose first step takes all hosts many times as long: compilation, first calls of libraries."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        if number == 0:
            program.host(round(times * 6_000_000), "cudaModuleLoadData", "call")
        reduced = -1
        for layer in range(10):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 15_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)
