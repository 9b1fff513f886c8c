"""Jobs that do something for the first time: compile, set up communicators, load modules, search for kernels."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import SHAPES, WIDE_SHAPES, after_of, job_of, layer_of, noisy_job, optimizer

_PHASES = ("bytecode_tracing", "GraphLowering.run", "Scheduler.codegen", "async_compile.wait")
"""Of a compilation, as Dynamo marks them."""


def compiling(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """Compiled regions; `compile` is a host's recompilation in a step, under Dynamo's ranges."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        ns = time_ns(faults, "compile", program.rank, number)
        with program.range("Torch-Compiled Region: 0/0", "operator"):
            if ns:
                with program.range("_compile.compile_inner (dynamo_timed)"):
                    program.host(ns, "torch/_dynamo/convert_frame.py(700): _compile_inner", "frame")
            for layer in range(8):
                made = layer_of(program, "triton_poi_fused_gelu_0", "triton_poi_fused_gelu_0", 500_000, 12_000, "")
                if layer == 1:
                    strike(program, faults, number)
                made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (made,))

    return job_of(ranks, steps, step, (world,), faults)


def recompiled(ranks: int = 4, steps: int = 6, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Compiled regions; `compile`: the guards of a rank's host fail in a step."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        ns = time_ns(faults, "compile", program.rank, number)
        for layer in range(12):
            with program.range("Torch-Compiled Region: 1/2", "operator"):
                if ns and layer == 3:
                    with program.range("_compile.compile_inner (dynamo_timed)"):
                        program.host(ns, "torch/_dynamo/convert_frame.py(700): _compile_inner", "frame")
                made = layer_of(program, "triton_red_fused_norm_1", "triton_red_fused_norm_1", 450_000, 11_000, "")
            if layer >= 6:
                made = program.collective("all_reduce", world, 4_000_000, 130_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


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


def set_up(
    ranks: int = 8, steps: int = 5, faults: Faults = (), *, setup_ns: int = 350_000_000, noise: Noise | None = None
) -> Job:
    """The communicators are set up in the first recorded step, by every host, in its first collective."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(14):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if layer == 6 and number == 0:
                program.host(setup_ns, "c10d::allreduce_", "operator")
            if layer >= 6:
                made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def warming(ranks: int = 4, steps: int = 5, faults: Faults = (), *, warm_ns: int = 900_000_000) -> Job:
    """The first recorded step searches for the quickest kernels; later ones use them."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(8):
            with program.range("aten::cudnn_convolution", "operator", "[[32, 64, 56, 56], [64, 64, 3, 3]]"):
                program.host(15_000 + (warm_ns // 4 if number == 0 and layer < 4 else 0))
                made = program.kernel("sm90_convolution", 500_000)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


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


def at_first_use(ranks: int = 4, steps: int = 6, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Sharded; `module`: a host loads a module of kernels when it first needs it. `written`: it writes its part of a checkpoint."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(12):
            gathered = program.collective("all_gather", world, 12_000_000, 120_000)
            made = after_of(
                program, "aten::linear" if layer < 6 else "aten::linear_backward", "gemm", 600_000, (gathered,)
            )
            module_ns = time_ns(faults, "module", program.rank, number)
            if layer == 2:
                strike(program, faults, number)
                if module_ns:
                    program.host(module_ns, "cuLibraryLoadData", "call")
            if layer >= 6:
                made = program.collective(
                    "reduce_scatter", world, 12_000_000, 140_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))
        written_ns = time_ns(faults, "written", program.rank, number)
        if written_ns:
            with program.range("save_checkpoint"):
                program.copy("DtoH", 256 << 20, 6_000_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize")
                program.host(written_ns, "torch/distributed/checkpoint/state_dict_saver.py(170): save", "frame")

    return noisy_job(ranks, steps, step, (world,), faults, noise)
