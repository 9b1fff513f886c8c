"""A sixth lot of kinds that no other file has: micro-batches that are steps, uneven replicas, guidance, beams, gathers from hosts."""

from dataclasses import replace

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.third_jobs import after_of, hit
from tests.simulator.unseen_jobs import SHAPES, drawn
from tests.simulator.workloads import layer_of, one_forward_one_backward, optimizer

_BACK = "[[4096, 2048], [4096, 2048]]"


def micro_stepped(ranks: int = 4, steps: int = 13, faults: Faults = (), *, micro: int = 4, is_read: bool = True,
                  noise: Noise | None = None) -> Job:  # fmt: skip
    """Each micro-batch is a step of the profiler's; gradients are reduced in every fourth, where the optimizer steps."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(6):
            layer_of(program, "aten::linear", "forward_gemm", 180_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
        is_last = number % micro == micro - 1
        for _ in range(6):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 360_000, 14_000, _BACK)
            if is_last:
                made = program.collective("all_reduce", world, 9_000_000, 200_000, after=(made,))
        if is_last:
            optimizer(program, (made,))
        if is_read:
            with program.range("aten::item", "operator"):
                program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize", after=(program.launched - 1,))

    return drawn(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def replicas(stages: int = 3, data: int = 2, steps: int = 3, faults: Faults = (), *, microbatches: int = 6,
             noise: Noise | None = None) -> Job:  # fmt: skip
    """Pipelines side by side; `more`: those of these ranks have one microbatch more."""
    lines = [Group(f"pp{k}", tuple(range(k, stages * data, data)), "pp") for k in range(data)]
    rows = [Group(f"dp{s}", tuple(range(s * data, (s + 1) * data)), "dp") for s in range(stages)]

    def step(program: Program, number: int) -> None:
        stage, place = divmod(program.rank, data)
        line, many = lines[place], microbatches + hit(faults, "more", program.rank, number)
        load(program, faults, number)
        made = -1
        for at, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, many, 1)):
            way, stream, needed = 1 if is_forward else -1, COMM_STREAM + (0 if is_forward else 2), ()
            if 0 <= stage - way < stages:
                needed = (
                    program.exchange(line, 2_000_000, 40_000, receives=(line.ranks[stage - way],), stream=stream),
                )
            made = after_of(program, "aten::linear" if is_forward else "aten::linear_backward",
                            "forward_gemm" if is_forward else "backward_gemm", 450_000 if is_forward else 900_000, needed)  # fmt: skip
            if at == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if 0 <= stage + way < stages:
                program.exchange(
                    line, 2_000_000, 40_000, sends=(line.ranks[stage + way],), stream=stream + 1, after=(made,)
                )
        made = program.collective("all_reduce", rows[stage], 20_000_000, 400_000, stream=COMM_STREAM + 5, after=(made,))
        optimizer(program, (made,))

    return drawn(stages * data, steps, step, (*lines, *rows), faults, noise)


def guided(ranks: int = 8, steps: int = 6, faults: Faults = (), *, layers: int = 8, noise: Noise | None = None) -> Job:
    """Images by pairs of ranks, one with the text and one without; both meet after each pass, all at a step's end.

    `text`: what attention to longer texts takes more.
    """
    pairs = [Group(f"cfg{n}", (2 * n, 2 * n + 1), "cfg") for n in range(ranks // 2)]
    world = Group("w", tuple(range(ranks)), "world")

    def step(program: Program, number: int) -> None:
        more_ns = time_ns(faults, "text", program.rank, number) // (2 * layers)
        length = 77 + more_ns // 1_000
        for _ in range(2):
            for layer in range(layers):
                layer_of(program, "aten::linear", "dit_gemm", 180_000, 14_000, SHAPES)
                made = layer_of(program, "aten::_scaled_dot_product_flash_attention", "flash_fwd", 80_000 + more_ns, 14_000,
                                f"[[1, 16, 4096, 64], [1, 16, {length}, 64]]")  # fmt: skip
                if layer == 1:
                    strike(program, faults, number)
            made = program.collective("all_gather", pairs[program.rank // 2], 1_000_000, 40_000, after=(made,))
            made = after_of(program, "aten::lerp", "lerp", 20_000, (made,), 8_000, "[[1, 4096, 64]]")
        program.collective("all_gather", world, 4_000_000, 120_000, after=(made,))

    return drawn(ranks, steps, step, (*pairs, world), faults, noise)


def documents(parts: int = 2, data: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 6,
              noise: Noise | None = None) -> Job:  # fmt: skip
    """Sequences in parts, gathered for attention in each layer; gradients over all. `long`: a document is longer, on all its ranks."""
    rows = [Group(f"cp{n}", tuple(range(n * parts, (n + 1) * parts)), "cp") for n in range(data)]
    world = Group("w", tuple(range(parts * data)), "dp")

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // parts]
        more_ns = time_ns(faults, "long", program.rank, number) // (2 * layers)
        length = 4096 + more_ns // 100
        load(program, faults, number)
        for layer in range(2 * layers):
            made = layer_of(program, "aten::linear", "gemm", 250_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective("all_gather", row, 2_000_000, 60_000, after=(made,))
            made = after_of(program, "aten::_flash_attention_forward", "flash_fwd_kernel", 200_000 + more_ns, (made,),
                            shapes=f"[[1, {length}, 16, 128]]")  # fmt: skip
            if layer >= layers:
                made = program.collective(
                    "all_reduce", world, 9_000_000, 200_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return drawn(parts * data, steps, step, (*rows, world), faults, noise)


def searched(
    ranks: int = 4, steps: int = 10, faults: Faults = (), *, layers: int = 8, noise: Noise | None = None
) -> Job:
    """Translation in tensor parallel: the beams are sorted out on every host alike; `beams`: a rank's host takes longer."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        for layer in range(layers):
            made = layer_of(program, "aten::mm", "gemm", 70_000, 8_000, "[[20, 4096], [4096, 4096]]")
            if layer == 1:
                strike(program, faults, number)
            program.collective("all_reduce", world, 80_000, 14_000, stream=COMPUTE_STREAM, after=(made,))
        with program.range("aten::topk", "operator", "[[5, 32000]]"):
            program.host(9_000)
            program.kernel("topk_kernel", 40_000)
        program.copy("DtoH", 400, 2_000, stream=COMPUTE_STREAM)
        program.sync("cudaStreamSynchronize", after=(program.launched - 1,))
        beams_ns = 150_000 + time_ns(faults, "beams", program.rank, number)
        program.host(beams_ns, "beam_search.py(212): process", "frame")

    return drawn(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def gathered_from_host(ranks: int = 4, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Features lie in the host's memory, and a kernel of the GPU gathers them over the bus; `bus`: a rank's takes longer."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        with program.range("sample_neighbors"):
            for _ in range(3):
                layer_of(program, "quiver::sample_neighbor", "sample_kernel", 120_000, 20_000, "[[8192]]")
        gather_ns = 2_400_000 + time_ns(faults, "bus", program.rank, number)
        layer_of(program, "quiver::gather", "quiver_tensor_gather", gather_ns, 14_000, "[[400000, 256], [120000]]")
        for layer in range(6):
            layer_of(program, "aten::addmm", "sage_gemm", 220_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(6):
            made = layer_of(program, "aten::mm", "sage_gemm_backward", 440_000, 14_000, _BACK)
            made = program.collective("all_reduce", world, 4_000_000, 110_000, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def recurrent(
    ranks: int = 4, steps: int = 4, faults: Faults = (), *, times: int = 40, noise: Noise | None = None
) -> Job:
    """A recurrent cell step by step, whose host looks at each step whether to go on."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for time in range(times):
            layer_of(program, "aten::addmm", "cell_gemm", 60_000, 14_000, "[[64, 1024], [1024, 4096]]")
            layer_of(program, "aten::sigmoid", "sigmoid_kernel", 6_000, 9_000, "[[64, 4096]]")
            if time == 1:
                strike(program, faults, number)
            with program.range("aten::item", "operator"):
                program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize", after=(program.launched - 1,))
        for _ in range(8):
            made = layer_of(program, "aten::mm", "backward_gemm", 260_000, 14_000, _BACK)
            made = program.collective("all_reduce", world, 4_000_000, 110_000, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def rewarded(
    ranks: int = 4, steps: int = 4, faults: Faults = (), *, tensors: int = 20, noise: Noise | None = None
) -> Job:
    """Answers by graphs, scores by a model, then training; at last rank 0 sends every tensor. `score`: a rank scores longer."""
    world = Group("0", tuple(range(ranks)), "dp")
    sends = Group("1", tuple(range(ranks)), "weights")

    def step(program: Program, number: int) -> None:
        with program.range("generate"):
            for _ in range(12):
                program.host(60_000, "engine.py(150): step", "frame")
                made = program.graph([("decode_attention", 60_000), ("decode_mlp", 120_000)] * 2)
        with program.range("reward"):
            for _ in range(4):
                ns = 350_000 + time_ns(faults, "score", program.rank, number) // 4
                layer_of(program, "aten::linear", "reward_gemm", ns, 14_000, f"[[{ns // 100}, 2048], [2048, 2048]]")
        for layer in range(8):
            made = layer_of(program, "aten::linear", "train_gemm", 600_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
            made = program.collective("all_reduce", world, 9_000_000, 200_000, after=(made,))
        optimizer(program, (made,))
        with program.range("update_weights"):
            for _ in range(tensors):
                program.host(15_000)
                program.collective(
                    "broadcast", sends, 2_000_000, 30_000, stream=COMM_STREAM + 1, after=(program.launched - 1,)
                )

    return drawn(ranks, steps, step, (world, sends), faults, noise)


def sent_in_two(nodes: int = 4, gpus: int = 2, steps: int = 4, faults: Faults = (), *, layers: int = 3,
                noise: Noise | None = None) -> Job:  # fmt: skip
    """Tokens go to their node first, over GPU k's rail, then to their expert's GPU within it; `nic`: a rank's rail takes more."""
    rails = [Group(f"rail{k}", tuple(range(k, nodes * gpus, gpus)), "rail") for k in range(gpus)]
    rows = [Group(f"node{n}", tuple(range(n * gpus, (n + 1) * gpus)), "node") for n in range(nodes)]
    world = Group("w", tuple(range(nodes * gpus)), "dp")

    def step(program: Program, number: int) -> None:
        rail, row = rails[program.rank % gpus], rows[program.rank // gpus]
        slow_ns = max(time_ns(faults, "nic", rank, number) for rank in rail.ranks) // (4 * layers)
        load(program, faults, number)
        for layer in range(2 * layers):
            made = layer_of(program, "aten::linear", "dense_gemm", 300_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective("all_to_all", rail, 4_000_000, 130_000 + slow_ns, after=(made,))
            made = program.collective("all_to_all", row, 4_000_000, 50_000, stream=COMM_STREAM + 1, after=(made,))
            made = after_of(program, "aten::_grouped_mm", "grouped_gemm", 350_000, (made,))
            made = program.collective("all_to_all", row, 4_000_000, 50_000, stream=COMM_STREAM + 1, after=(made,))
            made = program.collective("all_to_all", rail, 4_000_000, 130_000 + slow_ns, after=(made,))
            after_of(program, "aten::index_add", "combine", 30_000, (made,))
        made = program.collective("all_reduce", world, 16_000_000, 300_000, stream=COMM_STREAM + 2,
                                  after=(program.launched - 1,))  # fmt: skip
        optimizer(program, (made,))

    job = drawn(nodes * gpus, steps, step, (*rails, *rows, world), faults, noise)
    return replace(job, hosts=tuple(f"node{rank // gpus}" for rank in range(nodes * gpus)))


def measured(ranks: int = 8, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Sharded; `metrics`: a rank copies its activations out on a stream that nobody waits for; `kept`: all copy a checkpoint out."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(10):
            gathered = program.collective("all_gather", world, 12_000_000, 110_000)
            made = after_of(
                program, "aten::linear" if layer < 5 else "aten::linear_backward", "gemm", 550_000, (gathered,)
            )
            if layer == 1:
                strike(program, faults, number)
            for what in ("metrics", "kept"):
                ns = time_ns(faults, what, program.rank, number) // 10
                if ns:
                    program.copy("DtoH", 40 * ns, ns, stream=COPY_STREAM, after=(made,))
            if layer >= 5:
                made = program.collective(
                    "reduce_scatter", world, 12_000_000, 120_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise, ends_synced=False)
