"""A fourth lot of kinds that no other file has: encoders before models, offloaded activations, experts in stages, buckets."""

import random

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.third_jobs import after_of, hit
from tests.simulator.unseen_jobs import SHAPES, drawn
from tests.simulator.workloads import layer_of, one_forward_one_backward, optimizer


def encoded(encoders: int = 2, models: int = 4, steps: int = 5, faults: Faults = (), *, encode_ns: int = 5_000_000,
            noise: Noise | None = None) -> Job:  # fmt: skip
    """Some ranks encode pictures and send them to those that train a model on them, each its share, a step ahead.

    `pictures`: what an encoder's batch takes more.
    """
    many = models // encoders
    world, learners = (
        Group("0", tuple(range(encoders + models))),
        Group("1", tuple(range(encoders, encoders + models)), "dp"),
    )

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        if program.rank < encoders:
            ns = encode_ns + time_ns(faults, "pictures", program.rank, number)
            with program.range("encode"):
                for _ in range(10):
                    made = layer_of(program, "aten::cudnn_convolution", "vit_gemm", ns // 10, 14_000, SHAPES)
            for place in range(many):
                program.exchange(
                    world, 4_000_000, 80_000, sends=(encoders + many * program.rank + place,), after=(made,)
                )
            return
        got = program.exchange(world, 4_000_000, 80_000, receives=((program.rank - encoders) // many,))
        for layer in range(10):
            made = after_of(program, "aten::linear", "model_gemm", 600_000, (got,) if not layer else ())
            if layer == 1:
                strike(program, faults, number)
            made = program.collective(
                "all_reduce", learners, 6_000_000, 150_000, stream=COMM_STREAM + 1, after=(program.launched - 1,)
            )
        optimizer(program, (made,))

    return drawn(encoders + models, steps, step, (world, learners), faults, noise)


def spilled(ranks: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 8, noise: Noise | None = None) -> Job:
    """Activations go to the host beside forward, and come back a layer ahead beside backward; `bus`: copies take more."""
    world = Group("0", tuple(range(ranks)), "dp")

    def step(program: Program, number: int) -> None:
        more_ns = time_ns(faults, "bus", program.rank, number) // (2 * layers)
        load(program, faults, number)
        for layer in range(layers):
            made = layer_of(program, "aten::linear", "forward_gemm", 450_000, 14_000, SHAPES)
            program.copy("DtoH", 12 << 20, 280_000 + more_ns, stream=COPY_STREAM, after=(made,))
            if layer == 1:
                strike(program, faults, number)
        back = [
            program.copy("HtoD", 12 << 20, 280_000 + more_ns, stream=COPY_STREAM + 1, after=(program.launched - 1,))
        ]
        for layer in range(layers):
            if layer + 1 < layers:
                back.append(program.copy("HtoD", 12 << 20, 280_000 + more_ns, stream=COPY_STREAM + 1))
            made = after_of(
                program,
                "aten::linear_backward",
                "backward_gemm",
                900_000,
                (back[layer],),
                shapes="[[4096, 2048], [4096, 2048]]",
            )
            made = program.collective("all_reduce", world, 8_000_000, 200_000, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def experts_in_stages(stages: int = 2, experts: int = 4, steps: int = 3, faults: Faults = (), *, micro: int = 6,
                      noise: Noise | None = None) -> Job:  # fmt: skip
    """Pipelines whose stages hold experts, exchanged among the ranks of a stage in each pass; hosts read the routing.

    `route`: what a rank's host takes to route.
    """
    rows = [Group(f"ep{s}", tuple(range(s * experts, (s + 1) * experts)), "ep") for s in range(stages)]
    lines = [Group(f"pp{k}", tuple(range(k, stages * experts, experts)), "pp") for k in range(experts)]

    def step(program: Program, number: int) -> None:
        stage, place = divmod(program.rank, experts)
        line, row = lines[place], rows[stage]
        route_ns = time_ns(faults, "route", program.rank, number) // (2 * micro)
        load(program, faults, number)
        for at, (is_forward, _) in enumerate(one_forward_one_backward(stage, stages, micro, 1)):
            way, stream = 1 if is_forward else -1, COMM_STREAM + (0 if is_forward else 2)
            needed: tuple[int, ...] = ()
            if 0 <= stage - way < stages:
                needed = (
                    program.exchange(line, 2_000_000, 40_000, receives=(line.ranks[stage - way],), stream=stream),
                )
            made = after_of(program, "aten::linear", "dense_gemm", 200_000, needed)
            if route_ns:
                with program.range("route"):
                    program.host(route_ns, "router.py(91): assign", "frame")
            if at == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective("all_to_all", row, 2_000_000, 70_000, stream=COMM_STREAM + 5, after=(made,))
            made = after_of(
                program,
                "aten::_grouped_mm",
                "grouped_gemm",
                200_000 * (3 - way),
                (made,),
                shapes="[[4096, 2048], [8, 2048, 8192]]",
            )
            made = program.collective("all_to_all", row, 2_000_000, 70_000, stream=COMM_STREAM + 5, after=(made,))
            made = after_of(program, "aten::index_add", "combine", 20_000, (made,), 8_000)
            if 0 <= stage + way < stages:
                program.exchange(
                    line, 2_000_000, 40_000, sends=(line.ranks[stage + way],), stream=stream + 1, after=(made,)
                )
        made = program.collective("all_reduce", row, 12_000_000, 200_000, stream=COMM_STREAM + 6, after=(made,))
        optimizer(program, (made,))

    return drawn(stages * experts, steps, step, (*rows, *lines), faults, noise)


def bucketed(ranks: int = 8, steps: int = 4, faults: Faults = (), *, buckets: tuple[int, ...] = (2,) * 8, times: int = 1,
             noise: Noise | None = None) -> Job:  # fmt: skip
    """Data parallel whose buckets hold so many of sixteen layers' gradients, reduced so many `times`."""
    world = Group("0", tuple(range(ranks)))
    ends = {sum(buckets[: place + 1]): size for place, size in enumerate(buckets)}

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(16):
            layer_of(program, "aten::linear", "forward_gemm", 180_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for layer in range(1, 17):
            made = layer_of(
                program, "aten::linear_backward", "backward_gemm", 360_000, 14_000, "[[4096, 2048], [4096, 2048]]"
            )
            for _ in range(times if layer in ends else 0):
                made = program.collective(
                    "all_reduce", world, 25_000_000 * ends[layer], 250_000 * ends[layer], after=(made,)
                )
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def pausing(ranks: int = 8, steps: int = 8, faults: Faults = (), *, chance_of: float = 0.0, pause_ns: int = 5_000_000, seed: int = 1,
            noise: Noise | None = None) -> Job:  # fmt: skip
    """Tensor within data parallel, read once a step; hosts pause with a chance for the interpreter's garbage."""
    rows = [Group(f"tp{n}", (2 * n, 2 * n + 1), "tp") for n in range(ranks // 2)]
    columns = [Group(f"dp{n}", tuple(range(n, ranks, 2)), "dp") for n in (0, 1)]

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // 2], columns[program.rank % 2]
        does_pause = random.Random(f"{seed} {program.rank} {number}").random() < chance_of
        load(program, faults, number)
        for layer in range(12):
            made = after_of(program, "aten::mm", "gemm", 260_000, (program.launched - 1,))
            if layer == 5:
                strike(program, faults, number)
                if does_pause:
                    program.sync("cudaStreamSynchronize")
                    program.host(pause_ns, "gc.collect", "frame")
            made = program.collective("all_reduce", row, 2_000_000, 40_000, after=(program.launched - 1,))
            program.kernel("residual", 15_000, after=(made,))
        made = program.collective("all_reduce", column, 16_000_000, 250_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (made,))
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize")

    return drawn(ranks, steps, step, (*rows, *columns), faults, noise, ends_synced=False)


def decoded(
    ranks: int = 4, steps: int = 10, faults: Faults = (), *, layers: int = 10, noise: Noise | None = None
) -> Job:
    """Decoding in tensor parallel, kernel by kernel, a step for each token; the token is read at the end."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        for layer in range(layers):
            for name in ("rms_norm", "rope", "paged_attention"):
                layer_of(program, f"vllm::{name}", f"{name}_kernel", 7_000, 11_000, "[[16, 4096]]")
            made = layer_of(program, "aten::mm", "gemv", 22_000, 13_000, "[[16, 4096], [4096, 4096]]")
            if layer == 1:
                strike(program, faults, number)
            program.collective("all_reduce", world, 65_536, 11_000, stream=COMPUTE_STREAM, after=(made,))
        with program.range("aten::item", "operator"):
            program.copy("DtoH", 64, 2_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize")
        program.host(120_000, "engine.py(60): process_outputs", "frame")

    return drawn(ranks, steps, step, (world,), faults, noise, ends_synced=False)


def summed_over_nodes(
    gpus: int = 4, nodes: int = 2, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None
) -> Job:
    """Sharded within nodes; each GPU reduces with those of its place on all nodes: a slow card (`nic`) slows all of them."""
    rows = [Group(f"s{n}", tuple(range(n * gpus, (n + 1) * gpus)), "shard") for n in range(nodes)]
    columns = [Group(f"r{k}", tuple(range(k, gpus * nodes, gpus)), "replicate") for k in range(gpus)]

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // gpus], columns[program.rank % gpus]
        slow_ns = time_ns(faults, "nic", program.rank, number) // 6
        load(program, faults, number)
        for layer in range(12):
            gathered = program.collective("all_gather", row, 8_000_000, 70_000)
            made = after_of(program, "aten::linear", "gemm", 350_000, (gathered,))
            if layer == 1:
                strike(program, faults, number)
            if layer >= 6:
                made = program.collective(
                    "reduce_scatter", row, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,)
                )
                made = program.collective(
                    "all_reduce", column, 4_000_000, 150_000 + slow_ns, stream=COMM_STREAM + 2, after=(made,)
                )
        optimizer(program, (made,))

    return drawn(gpus * nodes, steps, step, (*rows, *columns), faults, noise)


def answered(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, tokens: int = 40, noise: Noise | None = None
) -> Job:
    """Each rank generates alone, by graphs; then all score and train. `retry`: a rank's cache is full while it generates."""
    world = Group("0", tuple(range(ranks)), "dp")
    graph = [("attention_kernel", 50_000), ("decode_gemm", 80_000), ("sample_kernel", 8_000)]

    def step(program: Program, number: int) -> None:
        each_ns = time_ns(faults, "retry", program.rank, number) // 4
        with program.range("generate"):
            for token in range(tokens):
                program.host(10_000)
                made = program.graph(graph)
                if each_ns and token % (tokens // 4) == 2:
                    program.sync("cudaDeviceSynchronize", after=(made,))
                    program.host(each_ns // 2, "cudaFree", "call")
                    program.host(each_ns // 2, "cudaMalloc", "call")
            program.sync("cudaStreamSynchronize")
        with program.range("train"):
            for layer in range(10):
                made = layer_of(program, "aten::linear", "train_gemm", 450_000, 14_000, SHAPES)
                if layer == 1:
                    strike(program, faults, number)
                made = program.collective("all_reduce", world, 6_000_000, 150_000, after=(made,))
            optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def packed(
    ranks: int = 4,
    steps: int = 4,
    faults: Faults = (),
    *,
    spread: float = 0.0,
    seed: int = 2,
    noise: Noise | None = None,
) -> Job:
    """Packed sequences; attention's time goes with the squares of lengths, drawn by rank and step; `long`: a rank's are longer."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        own = random.Random(f"{seed} {program.rank} {number}").uniform(1 - spread, 1 + spread)
        own *= 1 + time_ns(faults, "long", program.rank, number) / 1e9
        longest = round(2048 * own)
        load(program, faults, number)
        held = program.collective("all_gather", world, 20_000_000, 200_000)
        for layer in range(10):
            ready, held = held, program.collective("all_gather", world, 20_000_000, 200_000)
            after_of(program, "aten::linear", "gemm", 300_000, (ready,))
            made = after_of(program, "aten::_flash_attention_forward", "flash_fwd_kernel", round(250_000 * own * own), (),
                            shapes=f"[[8192, 16, 128], [{longest}]]")  # fmt: skip
            if layer >= 5:
                made = program.collective(
                    "reduce_scatter", world, 20_000_000, 200_000, stream=COMM_STREAM + 1, after=(made,)
                )
            if layer == 1:
                strike(program, faults, number)
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def precise(tensor: int = 2, data: int = 4, steps: int = 4, faults: Faults = (), *, noise: Noise | None = None) -> Job:
    """Tensor within data parallel; a rank with the fault `wide` makes one in three products in 32 bits, by another kernel."""
    rows = [Group(f"tp{n}", tuple(range(n * tensor, (n + 1) * tensor)), "tp") for n in range(data)]
    columns = [Group(f"dp{n}", tuple(range(n, tensor * data, tensor)), "dp") for n in range(tensor)]

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

    return drawn(tensor * data, steps, step, (*rows, *columns), faults, noise)
