"""A fifth lot of kinds that no other file has: norms in step, blocking launches, files swapped in, serving by stages."""

import random

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.third_jobs import after_of, hit
from tests.simulator.unseen_jobs import SHAPES, drawn
from tests.simulator.workloads import layer_of, one_forward_one_backward, optimizer

_BACK = "[[4096, 2048], [4096, 2048]]"


def normed(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 12, noise: Noise | None = None) -> Job:
    """Batch norms over all ranks: a small all-gather within each layer of forward, a small all-reduce in backward."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        made = program.launched - 1
        for layer in range(layers):
            made = after_of(program, "aten::cudnn_convolution", "conv_fprop", 180_000, (made,))
            if layer == 1:
                strike(program, faults, number)
            with program.range("SyncBatchNorm", "operator", SHAPES):
                program.host(30_000)
                made = program.collective("all_gather", world, 2_048, 14_000, after=(program.launched - 1,))
                made = program.kernel("batch_norm_elemt", 40_000, after=(made,))
        for layer in range(layers):
            with program.range("SyncBatchNormBackward", "operator", SHAPES):
                program.host(30_000)
                made = program.collective("all_reduce", world, 2_048, 14_000, after=(made,))
                made = program.kernel("batch_norm_backward_elemt", 40_000, after=(made,))
            made = after_of(program, "aten::convolution_backward", "conv_dgrad_wgrad", 360_000, (made,), shapes=_BACK)
            if layer % 4 == 3:
                last = program.collective(
                    "all_reduce", world, 12_000_000, 220_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (last,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def watched(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 10, noise: Noise | None = None
) -> Job:
    """Data parallel, as people debug it on one rank.

    `blocking`: each launch waits for its kernel; `anomaly`: each gradient is searched for what is no number; `drawn`: the
    gradients' histograms are made and read; `tune`: kernels are tried out, for so long.
    """
    world = Group("0", tuple(range(ranks)), "dp")

    def kernel(program: Program, operator: str, name: str, ns: int, number: int, shapes: str) -> int:
        made = layer_of(program, operator, name, ns, 14_000, shapes)
        if hit(faults, "blocking", program.rank, number):
            program.sync("cudaStreamSynchronize", after=(made,))
        return made

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            for _ in range(3):
                kernel(program, "aten::linear", "forward_gemm", 70_000, number, SHAPES)
            if layer == 1:
                strike(program, faults, number)
                _tried(program, time_ns(faults, "tune", program.rank, number))
        for _ in range(layers):
            for _ in range(3):
                made = kernel(program, "aten::linear_backward", "backward_gemm", 140_000, number, _BACK)
                searched_ns = time_ns(faults, "anomaly", program.rank, number) // (3 * layers)
                if searched_ns:
                    layer_of(program, "aten::isnan", "isnan_kernel", searched_ns, 9_000, "[[2048, 2048]]")
            made = program.collective("all_reduce", world, 8_000_000, 170_000, after=(made,))
        _drawn(program, time_ns(faults, "drawn", program.rank, number))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def _drawn(program: Program, ns: int) -> None:
    with program.range("log_histograms"):
        for _ in range(8 if ns else 0):
            layer_of(program, "aten::histc", "kernelHistogram1D", ns // 8, 9_000, "[[8000000]]")


def _tried(program: Program, ns: int) -> None:
    with program.range("triton_autotuner.py(600): benchmark_all_configs", "frame"):
        for place in range(40 if ns else 0):
            layer_of(program, "triton_candidate", f"triton_mm_{place % 8}", ns // 40, 12_000)


def merged(ranks: int = 4, steps: int = 9, faults: Faults = (), *, every: int = 4, outer_ns: int = 8_000_000,
           noise: Noise | None = None) -> Job:  # fmt: skip
    """Local steps; every so many the difference since is averaged, and an outer optimizer on the CPU steps. `outer`: a rank's takes more."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(10):
            layer_of(program, "aten::linear", "forward_gemm", 220_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(10):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 440_000, 14_000, _BACK)
        optimizer(program, (made,))
        if number % every == every - 1:
            made = program.collective("all_reduce", world, 80_000_000, 2_000_000, after=(program.launched - 1,))
            made = program.copy("DtoH", 160 << 20, 3_000_000, after=(made,))
            program.sync("cudaStreamSynchronize", after=(made,))
            with program.range("outer_step"):
                more_ns = time_ns(faults, "outer", program.rank, number)
                program.host(outer_ns + more_ns, "diloco.py(210): nesterov", "frame")
            program.copy("HtoD", 160 << 20, 3_000_000, stream=COMPUTE_STREAM)

    return drawn(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def stopping(stages: int = 4, microbatches: int = 6, steps: int = 4, faults: Faults = (), *, data: int = 1,
             noise: Noise | None = None) -> Job:  # fmt: skip
    """1F1B whose hosts wait for every message that they ask for before they go on."""
    lines = [Group(f"pp{k}", tuple(range(k, stages * data, data)), "pp") for k in range(data)]
    rows = [Group(f"dp{s}", tuple(range(s * data, (s + 1) * data)), "dp") for s in range(stages)]

    def step(program: Program, number: int) -> None:
        stage, replica = divmod(program.rank, data)
        line = lines[replica]
        load(program, faults, number)
        made = -1
        for place, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, microbatches, 1)):
            way, stream, needed = 1 if is_forward else -1, COMM_STREAM + (0 if is_forward else 2), ()
            if 0 <= stage - way < stages:
                needed = (
                    program.exchange(line, 2_000_000, 40_000, receives=(line.ranks[stage - way],), stream=stream),
                )
                program.sync("cudaStreamSynchronize", after=needed)
            name = "forward" if is_forward else "backward"
            for _ in range(3):
                made = after_of(program, "aten::linear" if is_forward else "aten::linear_backward", f"{name}_gemm",
                                150_000 if is_forward else 300_000, needed)  # fmt: skip
            if place == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if 0 <= stage + way < stages:
                target = line.ranks[stage + way]
                program.exchange(line, 2_000_000, 40_000, sends=(target,), stream=stream + 1, after=(made,))
        if data > 1:
            made = program.collective(
                "all_reduce", rows[stage], 20_000_000, 500_000, stream=COMM_STREAM + 5, after=(made,)
            )
        optimizer(program, (made,))

    return drawn(stages * data, steps, step, (*lines, *(rows if data > 1 else ())), faults, noise)


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

    return drawn(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def apart(ranks: int = 4, iterations: int = 16, faults: Faults = (), *, layers: int = 5, seed: int = 6,
          noise: Noise | None = None) -> Job:  # fmt: skip
    """Serving: each rank attends to requests of its own, experts are spread over all; ranks go in step.

    `prompt`: a rank's iteration also holds a long prompt: its attention takes so much more.
    """
    world = Group("0", tuple(range(ranks)), "ep")

    def step(program: Program, number: int) -> None:
        batch = random.Random(f"{seed} {program.rank} {number}").randint(30, 34)
        more_ns = time_ns(faults, "prompt", program.rank, number) // layers
        tokens = batch + more_ns // 2_000
        with program.range("schedule"):
            program.host(200_000, "scheduler.py(180): schedule", "frame")
        for layer in range(layers):
            layer_of(program, "aten::mm", "qkv_gemm", 60_000, 8_000, f"[[{tokens}, 4096], [4096, 4096]]")
            layer_of(program, "vllm::unified_attention", "paged_attention", 2_000 * batch + more_ns, 8_000,
                            f"[[{tokens}, 32, 128]]")  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
            program.collective("all_to_all", world, 500_000, 40_000, stream=COMPUTE_STREAM)
            layer_of(program, "aten::_grouped_mm", "grouped_gemm", 150_000, 8_000, "[[128, 4096], [8, 4096, 1024]]")
            program.collective("all_to_all", world, 500_000, 40_000, stream=COMPUTE_STREAM)
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 4 * batch, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize", after=(program.launched - 1,))

    return drawn(ranks, iterations, step, (world,), faults, noise, ends_synced=False)


def token_by_token(stages: int = 4, steps: int = 6, faults: Faults = (), *, tokens: int = 6, batches: int = 4, ns: int = 350_000,
                   noise: Noise | None = None) -> Job:  # fmt: skip
    """Decoding by stages: as many batches are under way as there are stages; the last one hands tokens to the first."""
    world = Group("0", tuple(range(stages)), "pp")

    def step(program: Program, number: int) -> None:
        stage = program.rank
        with program.range("schedule"):
            program.host(60_000, "scheduler.py(180): schedule", "frame")
        for token in range(tokens * batches):
            needed: tuple[int, ...] = ()
            if stage or token >= batches:
                needed = (program.exchange(world, 100_000, 15_000, receives=((stage - 1) % stages,)),)
            made = -1
            for place in range(3):
                made = after_of(program, "aten::mm", "gemm", ns // 3, needed if not place else (), 9_000,
                                "[[64, 4096], [4096, 4096]]")  # fmt: skip
            if token == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if stage < stages - 1 or token < (tokens - 1) * batches:
                program.exchange(
                    world, 100_000, 15_000, sends=((stage + 1) % stages,), stream=COMM_STREAM + 1, after=(made,)
                )

    return drawn(stages, steps, step, (world,), faults, noise)


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

    return drawn(ranks, steps, step, (world,), faults, noise)
