"""Jobs of kinds that no other file has: limited prefetch, chunked tensor parallelism, rails, adapters, rollouts by graphs."""

from collections.abc import Callable, Sequence

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise, noisy
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, one_forward_one_backward, optimizer

SHAPES = "[[4096, 2048], [2048, 2048]]"

_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def drawn(ranks: int, steps: int, step: Callable[[Program, int], None], groups: tuple[Group, ...], faults: Faults,
          noise: Noise | None, *, ends_synced: bool = True) -> Job:  # fmt: skip
    """The steps on all ranks, with noise."""
    return noisy(job_of(ranks, steps, step, groups, faults, ends_synced=ends_synced), noise or Noise(), faults)


def limited(ranks: int = 8, steps: int = 5, faults: Faults = (), *, layers: int = 8, offloaded: int = 3, limit: int = 2,
            noise: Noise | None = None) -> Job:  # fmt: skip
    """FSDP2: hosts stay `limit` layers ahead; the parameters of some layers lie in the host's memory, and so do their gradients.

    `bus`: what a rank's copies to its GPU take more.
    """
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        done: list[int] = []
        bus_ns = time_ns(faults, "bus", program.rank, number) // (2 * offloaded)
        for place in range(2 * layers):
            layer = place if place < layers else 2 * layers - 1 - place
            if len(done) >= limit:
                program.sync("cudaEventSynchronize", after=(done[-limit],))
            needed: tuple[int, ...] = ()
            if layer < offloaded:
                with program.range("aten::_to_copy", "operator"):
                    needed = (program.copy("HtoD", 12 << 20, 260_000 + bus_ns),)
            with program.range(f"FSDP::all_gather (layers.{layer})"):
                program.host(25_000)
                gathered = program.collective("all_gather", world, 12_000_000, 110_000, after=needed)
            name = "aten::linear" if place < layers else "aten::linear_backward"
            with program.range(name, "operator", SHAPES):
                program.host(18_000)
                made = program.kernel("forward_gemm" if place < layers else "backward_gemm",
                                      420_000 if place < layers else 800_000, after=(gathered,))  # fmt: skip
            if place == 1:
                strike(program, faults, number)
            done.append(made)
            if place >= layers:
                scattered = program.collective("reduce_scatter", world, 12_000_000, 120_000, stream=COMM_STREAM + 1,
                                               after=(made,))  # fmt: skip
                if layer < offloaded:
                    program.copy("DtoH", 12 << 20, 240_000, stream=COPY_STREAM + 1, after=(scattered,))
        optimizer(program, (scattered,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def two_nodes(
    gpus: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 6, noise: Noise | None = None
) -> Job:
    """Sharded within each of two nodes; GPU k of both nodes reduces over its own network card; `link` is a card's."""
    rows = [Group(f"s{n}", tuple(range(n * gpus, (n + 1) * gpus)), "shard") for n in (0, 1)]
    pairs = [Group(f"r{k}", (k, k + gpus), "replicate") for k in range(gpus)]

    def step(program: Program, number: int) -> None:
        row, pair = rows[program.rank // gpus], pairs[program.rank % gpus]
        slow_ns = time_ns(faults, "link", program.rank, number) // layers
        load(program, faults, number)
        for layer in range(layers):
            program.host(12_000)
            gathered = program.collective("all_gather", row, 8_000_000, 70_000)
            with program.range("aten::linear", "operator", SHAPES):
                program.kernel("forward_gemm", 300_000, after=(gathered,))
            if layer == 1:
                strike(program, faults, number)
        reduced = []
        for _ in range(layers):
            program.host(12_000)
            gathered = program.collective("all_gather", row, 8_000_000, 70_000)
            with program.range("aten::linear_backward", "operator", SHAPES):
                made = program.kernel("backward_gemm", 600_000, after=(gathered,))
            made = program.collective("reduce_scatter", row, 8_000_000, 90_000, stream=COMM_STREAM + 1, after=(made,))
            reduced.append(program.collective("all_reduce", pair, 4_000_000, 500_000 + slow_ns, stream=COMM_STREAM + 2,
                                              after=(made,)))  # fmt: skip
        optimizer(program, tuple(reduced))

    return drawn(2 * gpus, steps, step, (*rows, *pairs), faults, noise)


def chunked_tensor(
    ranks: int = 4, steps: int = 4, faults: Faults = (), *, layers: int = 6, noise: Noise | None = None
) -> Job:
    """Tensor parallelism by chunks: a chunk of the sequence goes round while the product of the one before is made."""
    world = Group("0", tuple(range(ranks)), "tp")

    def step(program: Program, number: int) -> None:
        following, before = (program.rank + 1) % ranks, (program.rank - 1) % ranks
        load(program, faults, number)
        made = program.kernel("embedding", 50_000)
        for layer in range(2 * layers):
            sent = made
            with program.range("symm_mem::fused_all_gather_matmul", "operator", SHAPES):
                for chunk in range(ranks):
                    program.host(8_000)
                    own = (sent,)
                    if chunk < ranks - 1:
                        sent = program.exchange(
                            world, 1_000_000, 60_000, sends=(following,), receives=(before,), after=own
                        )
                    made = program.kernel("gemm_chunk", 90_000, after=own if chunk else ())
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            program.host(15_000)
            made = program.collective("reduce_scatter", world, 4_000_000, 70_000, stream=COMM_STREAM + 1, after=(made,))
            with program.range("aten::native_layer_norm", "operator", SHAPES):
                program.host(8_000)
                made = program.kernel("layer_norm", 30_000, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def fed_by_broadcast(
    tensor: int = 4, data: int = 2, steps: int = 5, faults: Faults = (), *, noise: Noise | None = None
) -> Job:
    """The first rank of each tensor group loads and sends the batch to the others of its group."""
    rows = [Group(f"tp{n}", tuple(range(n * tensor, (n + 1) * tensor)), "tp") for n in range(data)]
    columns = [Group(f"dp{n}", tuple(range(n, tensor * data, tensor)), "dp") for n in range(tensor)]

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        if program.rank == row.ranks[0]:
            load(program, faults, number)
        with program.range("broadcast_data"):
            program.host(30_000)
            made = program.collective("broadcast", row, 65_536, 20_000, stream=COMPUTE_STREAM)
        for layer in range(10):
            with program.range("aten::mm", "operator", SHAPES):
                program.host(14_000)
                made = program.kernel("gemm", 350_000, after=(made,))
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            made = program.collective("all_reduce", row, 2_000_000, 45_000, after=(made,))
        made = program.collective("all_reduce", column, 16_000_000, 250_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (made,))

    return drawn(tensor * data, steps, step, (*rows, *columns), faults, noise)


def uneven_ring(tokens: Sequence[int] = (2048, 3072, 2048, 2048), steps: int = 4, faults: Faults = (), *, layers: int = 4,
                noise: Noise | None = None) -> Job:  # fmt: skip
    """Context parallelism: keys go round; each rank has its own number of tokens, where the fault `tokens` is: else the least."""
    ranks = len(tokens)
    world = Group("0", tuple(range(ranks)), "cp")

    def step(program: Program, number: int) -> None:
        own = tokens[program.rank] if time_ns(faults, "tokens", program.rank, number) else min(tokens)
        load(program, faults, number)
        made = program.launched - 1
        for _ in range(2 * layers):
            made = layer_of(program, "aten::linear", "qkv_gemm", own * 100, 14_000, f"[[{own}, 2048], [2048, 6144]]")
            held = made
            for part in range(ranks):
                needed = (held,)
                if part < ranks - 1:
                    held = program.exchange(world, 4_000_000, 80_000, sends=((program.rank + 1) % ranks,),
                                            receives=((program.rank - 1) % ranks,), after=(held,))  # fmt: skip
                with program.range("aten::_scaled_dot_product_flash_attention", "operator",
                                   f"[[1, 16, {own}, 128], [1, 16, 2048, 128]]"):  # fmt: skip
                    program.host(14_000)
                    made = program.kernel("flash_fwd", own * 90, after=needed)
        made = program.collective("all_reduce", world, 16_000_000, 300_000, stream=COMM_STREAM + 1, after=(made,))
        optimizer(program, (made,))

    return drawn(ranks, steps, step, (world,), faults, noise)


def zero_bubble(stages: int = 4, microbatches: int = 8, steps: int = 3, faults: Faults = (), *,
                first_ns: int = 0, last_ns: int = 0, noise: Noise | None = None) -> Job:  # fmt: skip
    """Backward in two parts: the inputs' gradients are sent on before the weights' are made.

    The first stage also embeds (`first_ns` a microbatch), the last one has the loss (`last_ns`).
    """
    world = Group("0", tuple(range(stages)), "pp")

    def step(program: Program, number: int) -> None:
        rank = program.rank
        load(program, faults, number)
        for place, (is_forward, _) in enumerate(one_forward_one_backward(rank, stages, microbatches, 1)):
            way = 1 if is_forward else -1
            stream, needed = COMM_STREAM + (0 if is_forward else 2), ()
            if 0 <= rank - way < stages:
                needed = (program.exchange(world, 1_000_000, 30_000, receives=(rank - way,), stream=stream),)
            if is_forward and rank == 0 and first_ns:
                layer_of(program, "aten::embedding", "embedding_gather", first_ns, 10_000, "[[128000, 2048], [8192]]")
            with program.range("aten::linear" if is_forward else "aten::linear_backward", "operator", SHAPES):
                program.host(20_000)
                made = program.kernel("forward_gemm" if is_forward else "input_gemm", 500_000, after=needed)
            if is_forward and rank == stages - 1 and last_ns:
                made = layer_of(program, "aten::cross_entropy_loss", "vocabulary_gemm", last_ns, 10_000,
                                "[[4096, 2048], [2048, 128000]]")  # fmt: skip
            if place == 1:
                strike(program, faults, number)
            if 0 <= rank + way < stages:
                program.exchange(world, 1_000_000, 30_000, sends=(rank + way,), stream=stream + 1, after=(made,))
            if not is_forward:
                layer_of(program, "aten::linear_backward", "weight_gemm", 500_000, 20_000, SHAPES)
        optimizer(program, ())

    return drawn(stages, steps, step, (world,), faults, noise)


def capped_experts(
    ranks: int = 8, steps: int = 4, faults: Faults = (), *, layers: int = 4, noise: Noise | None = None
) -> Job:
    """Experts with a capacity: exchanges are even; `hot`: a rank's experts are full, the others' are nine tenths of half full."""
    world = Group("0", tuple(range(ranks)), "ep")

    def step(program: Program, number: int) -> None:
        hot_ns = time_ns(faults, "hot", program.rank, number) // (2 * layers)
        tokens = 2_000 + hot_ns // 200
        load(program, faults, number)
        for layer in range(2 * layers):
            made = layer_of(program, "aten::linear", "dense_gemm", 300_000, 14_000, SHAPES)
            if layer == 1:
                strike(program, faults, number)
            sent = program.collective("all_to_all", world, 2_000_000, 90_000, after=(program.launched - 1,))
            with program.range("aten::_grouped_mm", "operator", f"[[{tokens}, 2048], [8, 2048, 8192]]"):
                program.host(14_000)
                made = program.kernel("expert_gemm", 400_000 + hot_ns, after=(sent,))
            back = program.collective("all_to_all", world, 2_000_000, 90_000, after=(made,))
            program.kernel("combine", 40_000, after=(back,))
        optimizer(program, ())

    return drawn(ranks, steps, step, (world,), faults, noise)


def rails(
    nodes: int = 4, gpus: int = 2, steps: int = 4, faults: Faults = (), *, layers: int = 3, noise: Noise | None = None
) -> Job:
    """Experts over GPU k of every node, on a rail of the network; gradients over all; `link` is a rail's exchanges."""
    rows = [Group(f"ep{k}", tuple(range(k, nodes * gpus, gpus)), "ep") for k in range(gpus)]
    world = Group("w", tuple(range(nodes * gpus)), "dp")

    def step(program: Program, number: int) -> None:
        row = rows[program.rank % gpus]
        slow_ns = time_ns(faults, "link", program.rank, number) // (4 * layers)
        load(program, faults, number)
        for _ in range(2 * layers):
            made = layer_of(program, "aten::linear", "dense_gemm", 300_000, 14_000, SHAPES)
            sent = program.collective("all_to_all", row, 4_000_000, 160_000 + slow_ns, after=(made,))
            with program.range("aten::_grouped_mm", "operator", SHAPES):
                program.host(14_000)
                made = program.kernel("expert_gemm", 350_000, after=(sent,))
            back = program.collective("all_to_all", row, 4_000_000, 160_000 + slow_ns, after=(made,))
            program.kernel("combine", 40_000, after=(back,))
        made = program.collective("all_reduce", world, 16_000_000, 300_000, stream=COMM_STREAM + 1,
                                  after=(program.launched - 1,))  # fmt: skip
        optimizer(program, (made,))

    return drawn(nodes * gpus, steps, step, (*rows, world), faults, noise)
