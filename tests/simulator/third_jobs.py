"""A third lot of kinds that no other file has: how parameters, gradients, tokens and sequences are spread over ranks."""

import random

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.unseen_jobs import SHAPES, drawn
from tests.simulator.workloads import layer_of, one_forward_one_backward, optimizer


def hit(faults: Faults, what: str, rank: int, step: int) -> bool:
    """Whether the rank has such a fault in the step."""
    return any(fault.what == what and fault.hits(rank, step) for fault in faults)


def after_of(program: Program, operator: str, kernel: str, ns: int, after: tuple[int, ...], host_ns: int = 14_000,
             shapes: str = SHAPES) -> int:  # fmt: skip
    """An operator of one kernel that waits for others."""
    with program.range(operator, "operator", shapes):
        program.host(host_ns)
        return program.kernel(kernel, ns, after=after)


def cube(tensor: int = 2, stages: int = 4, data: int = 2, steps: int = 3, faults: Faults = (), *, chunks: int = 2,
         micro: int = 4, stage_ns: tuple[int, ...] = (), noise: Noise | None = None) -> Job:  # fmt: skip
    """Sequence and tensor parallel stages, interleaved, with a distributed optimizer; ranks are numbered tensor, data, stage.

    `tplink` and `dplink`: what transfers of a rank's tensor and data group take more.
    """
    count = tensor * stages * data
    rows = [Group(f"tp{n}", tuple(range(n * tensor, (n + 1) * tensor)), "TENSOR_MODEL_PARALLEL_GROUP")
            for n in range(stages * data)]  # fmt: skip
    columns = {(t, s): Group(f"dp{t}_{s}", tuple(t + tensor * (d + data * s) for d in range(data)), "DATA_PARALLEL_GROUP")
               for t in range(tensor) for s in range(stages)}  # fmt: skip
    lines = {(t, d): Group(f"pp{t}_{d}", tuple(t + tensor * (d + data * s) for s in range(stages)),
                           "PIPELINE_MODEL_PARALLEL_GROUP") for t in range(tensor) for d in range(data)}  # fmt: skip

    def step(program: Program, number: int) -> None:
        place, replica, stage = program.rank % tensor, program.rank // tensor % data, program.rank // (tensor * data)
        row, column, line = rows[program.rank // tensor], columns[place, stage], lines[place, replica]
        each_ns = stage_ns[stage] if stage_ns else 400_000
        passes = one_forward_one_backward(stage, stages, micro, chunks)
        slow_ns = time_ns(faults, "tplink", program.rank, number) // (2 * len(passes))
        load(program, faults, number)
        made = -1
        for at, (is_forward, chunk) in enumerate(passes):
            way, own = 1 if is_forward else -1, chunk * stages + stage
            stream, needed = COMM_STREAM + (0 if is_forward else 2), ()
            if 0 <= own - way < stages * chunks:
                source = line.ranks[(own - way) % stages]
                needed = (program.exchange(line, 2_000_000, 40_000, receives=(source,), stream=stream),)
            gathered = program.collective(
                "all_gather", row, 2_000_000, 45_000 + slow_ns, stream=COMM_STREAM + 7, after=needed
            )
            name = "forward" if is_forward else "backward"
            made = after_of(program, "aten::linear" if is_forward else "aten::linear_backward", f"{name}_gemm",
                            each_ns * (3 - way) // (2 * chunks), (gathered,))  # fmt: skip
            if at == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective(
                "reduce_scatter", row, 2_000_000, 45_000 + slow_ns, stream=COMM_STREAM + 7, after=(made,)
            )
            made = after_of(program, "aten::native_layer_norm", "layer_norm", 20_000, (made,), 8_000)
            if 0 <= own + way < stages * chunks:
                target = line.ranks[(own + way) % stages]
                program.exchange(line, 2_000_000, 40_000, sends=(target,), stream=stream + 1, after=(made,))
        more_ns = time_ns(faults, "dplink", program.rank, number) // 2
        made = program.collective(
            "reduce_scatter", column, 30_000_000, 160_000 + more_ns, stream=COMM_STREAM + 8, after=(made,)
        )
        optimizer(program, (made,))
        program.collective(
            "all_gather", column, 30_000_000, 150_000 + more_ns, stream=COMM_STREAM + 8, after=(program.launched - 1,)
        )

    return drawn(count, steps, step, (*rows, *columns.values(), *lines.values()), faults, noise)


def prefetching(ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 6, gather_ns: int = 120_000,
                copy_ns: int = 200_000, is_synced: bool = False, noise: Noise | None = None) -> Job:  # fmt: skip
    """FSDP2: the next layer is gathered ahead into one of two buffers, copied out, and gradients are scattered beside.

    `twice`: each layer is gathered once more in forward; `dtype`: a rank's products are made in 32 bits; `batch`: what
    its batch's copy takes more; `allocate`: what it spends in calls for memory.
    """
    world = Group("0", tuple(range(ranks)), "fsdp")

    def gather(program: Program, number: int, free: tuple[int, ...], layer: int) -> int:
        with program.range(f"FSDP::all_gather (layers.{layer})"):
            program.host(20_000)
            for _ in range(1 + hit(faults, "twice", program.rank, number)):
                made = program.collective("all_gather", world, 20_000_000, gather_ns, after=free)
        return made

    def step(program: Program, number: int) -> None:
        is_wide = hit(faults, "dtype", program.rank, number)
        kind, times = ("sgemm_fp32", 2.4) if is_wide else ("bf16_gemm", 1.0)
        load(program, faults, number)
        with program.range("aten::to", "operator"):
            batch_ns = copy_ns + time_ns(faults, "batch", program.rank, number)
            program.copy("HtoD", 8 << 20, batch_ns, stream=COMPUTE_STREAM)
        done: list[int] = []
        held = gather(program, number, (), 0)
        order = [*range(layers), *reversed(range(layers))]
        for place in range(2 * layers):
            ready = held
            if place + 1 < len(order):
                held = gather(program, number, tuple(done[-1:]), order[place + 1])
            ns = 350_000 if place < layers else 700_000
            after_of(
                program, "fsdp::all_gather_copy_out", "split_with_sizes_copy", 25_000, (ready,), 10_000, "[[20000000]]"
            )
            for part in range(2):
                shapes = SHAPES if place < layers else "[[2048, 8192], [8192, 4096]]"
                done.append(after_of(program, "aten::mm", f"{kind}_{part}", round(ns * times / 2), (), shapes=shapes))
            if place == 1:
                strike(program, faults, number)
            wasted = time_ns(faults, "allocate", program.rank, number) // 9
            if wasted and place in (2, 5, 8):
                _allocated(program, wasted, done[-1])
            if place >= layers:
                copied = after_of(program, "fsdp::chunk_cat", "chunk_cat", 25_000, (), 10_000, "[[20000000]]")
                last = program.collective(
                    "reduce_scatter", world, 20_000_000, gather_ns, stream=COMM_STREAM + 1, after=(copied,)
                )
        optimizer(program, (last,))

    return drawn(ranks, steps, step, (world,), faults, noise, ends_synced=is_synced)


def _allocated(program: Program, each_ns: int, made: int) -> None:
    """Memory is full, and freed three times."""
    for _ in range(3):
        program.sync("cudaDeviceSynchronize", after=(made,))
        program.host(each_ns, "cudaFree", "call")


def in_shards(ranks: int = 16, steps: int = 3, faults: Faults = (), *, micro: int = 3, buckets: int = 5, bucket_ns: int = 400_000,
              noise: Noise | None = None) -> Job:  # fmt: skip
    """ZeRO-1: gradients of several micro-steps are reduced in the last one, each rank updates its part, all gather."""
    world = Group("0", tuple(range(ranks)), "data_parallel_group")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for part in range(micro):
            for layer in range(6):
                layer_of(program, "aten::linear", "forward_gemm", 250_000, 14_000, SHAPES)
                if layer == 1 and part == 1:
                    strike(program, faults, number)
            for layer in range(6):
                made = layer_of(program, "aten::linear_backward", "backward_gemm", 500_000, 14_000, SHAPES)
                if part == micro - 1:
                    for _ in range(buckets // 6 + (layer < buckets % 6)):
                        made = program.collective(
                            "reduce_scatter", world, 100_000_000 // buckets, bucket_ns, after=(made,)
                        )
        optimizer(program, (made,))
        program.collective("all_gather", world, 100_000_000, 1_500_000, after=(program.launched - 1,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def on_the_cpu(
    ranks: int = 4, steps: int = 4, faults: Faults = (), *, adam_ns: int = 12_000_000, noise: Noise | None = None
) -> Job:
    """ZeRO-2 with offload: gradients go to the host as they come, its Adam updates the rank's part (`adam` takes more)."""
    world = Group("0", tuple(range(ranks)), "data_parallel_group")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 300_000, 14_000, SHAPES)
        for _ in range(8):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 600_000, 14_000, SHAPES)
            made = program.collective("reduce_scatter", world, 16_000_000, 250_000, after=(made,))
            made = program.copy("DtoH", 8 << 20, 180_000, after=(made,))
        program.sync("cudaStreamSynchronize", after=(made,))
        with program.range("Optimizer.step#DeepSpeedCPUAdam.step"):
            program.host(
                adam_ns + time_ns(faults, "adam", program.rank, number), "cpu_adam.py(150): adam_update", "frame"
            )
        made = program.copy("HtoD", 32 << 20, 700_000, stream=COPY_STREAM + 1)
        program.collective("all_gather", world, 64_000_000, 800_000, after=(made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def by_hooks(ranks: int = 4, steps: int = 4, faults: Faults = (), *, modules: int = 30, hook_ns: int = 150_000,
             noise: Noise | None = None) -> Job:  # fmt: skip
    """ZeRO-3: before each module a hook fetches its parameters, after it another drops them: hosts are slower than GPUs."""
    world = Group("0", tuple(range(ranks)), "data_parallel_group")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for module in range(2 * modules):
            with program.range("PartitionedParameterCoordinator.fetch_sub_module", "frame"):
                program.host(hook_ns, "partitioned_param_coordinator.py(285): fetch_sub_module", "frame")
                gathered = program.collective("all_gather", world, 4_000_000, 40_000)
            made = after_of(
                program, "aten::linear" if module < modules else "aten::linear_backward", "gemm", 110_000, (gathered,)
            )
            if module == 1:
                strike(program, faults, number)
            if module >= modules:
                made = program.collective(
                    "reduce_scatter", world, 4_000_000, 45_000, stream=COMM_STREAM + 1, after=(made,)
                )
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def routed_unevenly(experts: int = 8, data: int = 2, steps: int = 4, faults: Faults = (), *, layers: int = 3, spread: float = 0.1,
                    seed: int = 5, noise: Noise | None = None) -> Job:  # fmt: skip
    """Experts in groups; tokens differ by rank, step and layer; hosts read the split sizes. `hot`: a rank gets so much more."""
    rows = [Group(f"ep{n}", tuple(range(n * experts, (n + 1) * experts)), "ep") for n in range(data)]
    world = Group("w", tuple(range(experts * data)), "dp")

    def loads(row: Group, number: int, layer: int) -> list[int]:
        chance = random.Random(f"{seed} {row.name} {number} {layer}")
        drawn_at = [round(4_000 * (1 + spread * chance.uniform(-1, 1))) for _ in row.ranks]
        return [one + time_ns(faults, "hot", rank, number) // (2 * layers) // 90
                for one, rank in zip(drawn_at, row.ranks, strict=True)]  # fmt: skip

    def step(program: Program, number: int) -> None:
        row = rows[program.rank // experts]
        load(program, faults, number)
        for layer in range(2 * layers):
            tokens = loads(row, number, layer)
            own = tokens[program.rank % experts]
            sent, received = tuple(each // experts * 1024 for each in tokens), (own // experts * 1024,) * experts
            layer_of(program, "aten::linear", "dense_gemm", 350_000, 14_000, SHAPES)
            with program.range("aten::item", "operator"):
                program.copy("DtoH", 64, 2_000, stream=COMPUTE_STREAM)
                program.sync("cudaStreamSynchronize")
            if layer == 1:
                strike(program, faults, number)
            came = program.exchange_unevenly(row, sent, received, 60_000 + 8 * own, after=(program.launched - 1,))
            made = after_of(
                program,
                "aten::_grouped_mm",
                "grouped_gemm",
                90 * own,
                (came,),
                14_000,
                f"[[{own}, 1024], [8, 1024, 4096]]",
            )
            back = program.exchange_unevenly(row, received, sent, 60_000 + 8 * own, after=(made,))
            made = after_of(program, "aten::index_add", "combine", 30_000, (back,), 10_000)
        made = program.collective("all_reduce", world, 32_000_000, 600_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (made,))

    return drawn(experts * data, steps, step, (*rows, world), faults, noise)


def keys_and_values(ranks: int = 8, steps: int = 4, faults: Faults = (), *, layers: int = 2,
                    noise: Noise | None = None) -> Job:  # fmt: skip
    """Ring attention: keys and values go round on a stream each, beside attention; zigzag, so that parts are even.

    `long`: a rank's documents are longer (its share of the step); `link`: what the messages over one edge take more.
    """
    world = Group("0", tuple(range(ranks)), "cp")

    def step(program: Program, number: int) -> None:
        own = 2_048 + time_ns(faults, "long", program.rank, number) // (2 * layers * ranks) // 60
        following, before = (program.rank + 1) % ranks, (program.rank - 1) % ranks
        slow_ns = time_ns(faults, "link", program.rank, number) // (2 * layers * (ranks - 1))
        load(program, faults, number)
        made = program.launched - 1
        for layer in range(2 * layers):
            made = after_of(program, "aten::linear", "qkv_gemm", 300_000, (made,))
            held = [made, made]
            if layer == 1:
                strike(program, faults, number)
            for part in range(ranks):
                needed = tuple(held)
                if part < ranks - 1:
                    held = [program.exchange(world, 4_000_000, 70_000 + slow_ns, sends=(following,), receives=(before,),
                                             stream=COMM_STREAM + lane, after=(each,)) for lane, each in enumerate(held)]  # fmt: skip
                made = after_of(program, "aten::_flash_attention_forward", "flash_fwd_kernel", own * 60, needed,
                                14_000, f"[[1, {own}, 16, 128], [1, 2048, 16, 128]]")  # fmt: skip
        made = program.collective("all_reduce", world, 24_000_000, 450_000, stream=COMM_STREAM + 3, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def paired_nodes(gpus: int = 4, nodes: int = 4, steps: int = 3, faults: Faults = (), *, layers: int = 4,
                 noise: Noise | None = None) -> Job:  # fmt: skip
    """Sharded within nodes, replicated over pairs of nodes; `nic`: what reductions between nodes take this rank more."""
    rows = [Group(f"s{n}", tuple(range(n * gpus, (n + 1) * gpus)), "shard") for n in range(nodes)]
    pairs = {(n, k): Group(f"r{n}_{k}", (2 * n * gpus + k, (2 * n + 1) * gpus + k), "replicate")
             for n in range(nodes // 2) for k in range(gpus)}  # fmt: skip
    world = Group("w", tuple(range(nodes * gpus)), "world")

    def step(program: Program, number: int) -> None:
        row, pair = rows[program.rank // gpus], pairs[program.rank // (2 * gpus), program.rank % gpus]
        slow_ns = time_ns(faults, "nic", program.rank, number) // layers
        load(program, faults, number)
        for layer in range(2 * layers):
            gathered = program.collective("all_gather", row, 8_000_000, 70_000)
            made = after_of(program, "aten::linear", "gemm", 300_000 if layer < layers else 600_000, (gathered,))
            if layer == 1:
                strike(program, faults, number)
            if layer >= layers:
                made = program.collective(
                    "reduce_scatter", row, 8_000_000, 80_000, stream=COMM_STREAM + 1, after=(made,)
                )
                made = program.collective(
                    "all_reduce", pair, 4_000_000, 450_000 + slow_ns, stream=COMM_STREAM + 2, after=(made,)
                )
        made = program.collective("all_reduce", world, 1, 20_000, stream=COMM_STREAM + 3, after=(made,))
        optimizer(program, (made,))

    return drawn(nodes * gpus, steps, step, (*rows, *pairs.values(), world), faults, noise)
