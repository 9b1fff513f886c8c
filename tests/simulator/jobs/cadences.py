"""Jobs told apart by what comes how often: averages, validation, logs, recycling, timers, one graph a step."""

import random

from tests.simulator.faults import Faults, hit, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import WIDE_BACK_SHAPES, WIDE_SHAPES, after_of, layer_of, noisy_job, optimizer


def with_cadences(ranks: int = 4, steps: int = 9, faults: Faults = (), *, averages: int = 3, validates: int = 0, logs: int = 2,
                  noise: Noise | None = None) -> Job:  # fmt: skip
    """Weights are averaged in every third step, the loss is read in every second one, the model validated where asked for.

    `averages`: averaging takes a rank longer, where it is due.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 250_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(8):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 500_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 6_000_000, 160_000, after=(made,))
        optimizer(program, (made,))
        if number % averages == averages - 1:
            with program.range("ema.update"):
                ns = 800_000 + time_ns(faults, "averages", program.rank, number)
                layer_of(program, "aten::_foreach_lerp_", "multi_tensor_apply_kernel", ns, 12_000, "")
        if number % logs == logs - 1:
            with program.range("aten::item", "operator"):
                program.sync("cudaStreamSynchronize")
            program.host(150_000, "metrics.py(40): log", "frame")
        if validates and number % validates == validates - 1:
            with program.range("validate"):
                for _ in range(16):
                    layer_of(program, "aten::linear", "forward_gemm", 250_000, 14_000, WIDE_SHAPES)

    return noisy_job(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def recycled(
    ranks: int = 4,
    steps: int = 7,
    faults: Faults = (),
    *,
    is_alike: bool = True,
    seed: int = 4,
    noise: Noise | None = None,
) -> Job:
    """The trunk runs once to four times, as drawn for each step, by all ranks alike or by each for itself; then backward."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        drawn = f"{seed} {number}" if is_alike else f"{seed} {number} {program.rank}"
        load(program, faults, number)
        for again in range(random.Random(drawn).randint(1, 4)):
            with program.range("evoformer"):
                for layer in range(6):
                    after_of(program, "aten::bmm", "triangle_attention", 350_000, ())
                    if layer == 1 and not again:
                        strike(program, faults, number)
        for _ in range(6):
            made = layer_of(program, "BmmBackward0", "triangle_backward", 700_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def timed(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 8, host_ns: int = 60_000,
          noise: Noise | None = None) -> Job:  # fmt: skip
    """Each phase is timed, for which every host waits for its GPU; its launches are as long as its kernels."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        program.sync()
        with program.range("forward"):
            for layer in range(layers):
                layer_of(program, "aten::linear", "forward_gemm", 70_000, host_ns, WIDE_SHAPES)
                if layer == 1:
                    strike(program, faults, number)
        program.sync()
        with program.range("backward"):
            for _ in range(layers):
                made = layer_of(program, "AddmmBackward0", "backward_gemm", 140_000, host_ns, WIDE_BACK_SHAPES)
                made = program.collective("all_reduce", world, 2_000_000, 60_000, after=(made,))
        program.sync()
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def in_one_graph(ranks: int = 4, steps: int = 6, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Forward and backward are one CUDA graph, gradients one all-reduce, the optimizer another graph."""
    world = Group("0", tuple(range(ranks)))
    passes = [("forward_gemm", 300_000)] * 8 + [("backward_gemm", 600_000)] * 8

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        strike(program, faults, number)
        program.host(40_000, "cuda/graphs.py(88): replay", "frame")
        made = program.graph(passes)
        made = program.collective("all_reduce", world, 48_000_000, 900_000, stream=COMPUTE_STREAM, after=(made,))
        program.host(20_000)
        program.graph([("adam", 60_000)] * 4)

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def partly_resharded(ranks: int = 8, steps: int = 4, faults: Faults = (), *, kept: int = 3, layers: int = 6, gather_ns: int = 140_000,
                     noise: Noise | None = None) -> Job:  # fmt: skip
    """Sharded; the last layers' parameters stay after forward, those of the first ones are gathered again for backward."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        held = program.collective("all_gather", world, 16_000_000, gather_ns)
        for layer in range(layers):
            ready = held
            if layer + 1 < layers:
                held = program.collective("all_gather", world, 16_000_000, gather_ns)
            after_of(program, "aten::linear", "forward_gemm", 300_000, (ready,))
            if layer == 1:
                strike(program, faults, number)
        for layer in reversed(range(layers)):
            if layer and layer <= layers - kept:
                held = program.collective("all_gather", world, 16_000_000, gather_ns)
            made = after_of(program, "AddmmBackward0", "backward_gemm", 600_000, (held,), 14_000, WIDE_BACK_SHAPES)
            made = program.collective(
                "reduce_scatter", world, 16_000_000, gather_ns, stream=COMM_STREAM + 1, after=(made,)
            )
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def scattered_once(ranks: int = 4, steps: int = 4, faults: Faults = (), *, micros: int = 4, spread: float = 0.2, seed: int = 3,
                   noise: Noise | None = None) -> Job:  # fmt: skip
    """Micro-batches of random lengths, gathered in each, scattered after the last; `long`: all of a rank's are longer, a step."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        for micro in range(micros):
            times = 1 + spread * random.Random(f"{seed} {number} {micro} {program.rank}").uniform(-1, 1)
            ns = round(250_000 * times) + time_ns(faults, "long", program.rank, number) // micros // 12
            shapes = f"[[{ns // 100}, 2048], [2048, 2048]]"
            load(program, faults if not micro else (), number)
            for layer in range(4):
                ready = program.collective("all_gather", world, 12_000_000, 90_000)
                after_of(program, "aten::linear", "forward_gemm", ns, (ready,), 14_000, shapes)
                if layer == 1 and micro == 1:
                    strike(program, faults, number)
            for _ in range(4):
                made = layer_of(program, "AddmmBackward0", "backward_gemm", 2 * ns, 14_000, shapes)
                if micro == micros - 1:
                    made = program.collective("reduce_scatter", world, 12_000_000, 100_000, stream=COMM_STREAM + 1,
                                              after=(made,))  # fmt: skip
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def of_small_tensors(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, tensors: int = 40, noise: Noise | None = None
) -> Job:
    """A batch is many small tensors, each copied by itself from pageable memory, for which the host waits.

    `packed`: on all but some ranks it is one tensor.
    """
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        many = 1 if hit(faults, "packed", program.rank, number) else tensors
        program.host(30_000, "collate")
        for _ in range(many):
            with program.range("aten::to", "operator"):
                program.host(25_000)
                made = program.copy("HtoD", 1 << 16, 14_000, stream=COMPUTE_STREAM, memory="Pageable")
                program.sync("cudaStreamSynchronize", after=(made,))
        for layer in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(8):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 400_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def rows_from_host(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, look_ns: int = 1_500_000, noise: Noise | None = None
) -> Job:
    """Rows of embeddings are looked up in the host's memory, copied up, and their gradients back; `look`: a rank's takes longer."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        with program.range("aten::embedding_bag", "operator"):
            program.host(look_ns + time_ns(faults, "look", program.rank, number), "aten::_embedding_bag")
        rows = program.copy("HtoD", 32 << 20, 600_000, stream=COMPUTE_STREAM)
        for layer in range(8):
            after_of(program, "aten::linear", "forward_gemm", 250_000, (rows,))
            if layer == 1:
                strike(program, faults, number)
        for _ in range(8):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 500_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", world, 4_000_000, 140_000, after=(made,))
        program.copy("DtoH", 32 << 20, 600_000)
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
