"""Jobs whose communication has something about it: links at half rate, uneven exchanges, chains on one stream, hooks."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.grid_jobs import slowed
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, one_forward_one_backward, optimizer

_SHAPES = "[[4096, 768], [768, 768]]"


def mesh(tensor: int = 4, data: int = 4, steps: int = 5, faults: Faults = (), *, of: str = "dp", tensor_ns: int = 80_000,
         data_ns: int = 1_500_000) -> Job:  # fmt: skip
    """Tensor within data parallelism; `link` slows the all-reduces `of` one kind of groups."""
    rows = [Group(f"tp{n}", tuple(range(n * tensor, (n + 1) * tensor)), "tp") for n in range(data)]
    columns = [Group(f"dp{n}", tuple(range(n, tensor * data, tensor)), "dp") for n in range(tensor)]

    def step(program: Program, number: int) -> None:
        row, column = rows[program.rank // tensor], columns[program.rank % tensor]
        load(program, faults, number)
        needed: tuple[int, ...] = ()
        for layer in range(10):
            made = layer_of_after(program, "forward_gemm" if layer < 5 else "backward_gemm", 300_000, needed)
            if layer == 1:
                strike(program, faults, number)
                made = program.launched - 1
            needed = (program.collective("all_reduce", row, 2_000_000, tensor_ns, after=(made,)),)
        for _ in range(2):
            needed = (program.collective("all_reduce", column, 60_000_000, data_ns // 2, stream=COMM_STREAM + 1,
                                         after=needed),)  # fmt: skip
        optimizer(program, needed)

    return slowed(job_of(tensor * data, steps, step, (*rows, *columns), faults), of, "all_reduce", faults)


def layer_of_after(program: Program, kernel: str, ns: int, after: tuple[int, ...]) -> int:
    """An operator whose kernel waits for others."""
    with program.range("aten::linear", "operator", _SHAPES):
        program.host(15_000)
        return program.kernel(kernel, ns, after=after)


def edged(stages: int = 4, microbatches: int = 8, steps: int = 4, faults: Faults = (), *, edge: int = 1,
          message_ns: int = 200_000) -> Job:  # fmt: skip
    """1F1B whose messages between one stage and the next take longer (`link`, of both ranks), both ways."""
    world = Group("0", tuple(range(stages)))

    def message(program: Program, number: int, peer: int, stream: int, *, is_sent: bool, after: tuple[int, ...]) -> int:
        is_edge = {program.rank, peer} == {edge, edge + 1}
        ns = message_ns + is_edge * (time_ns(faults, "link", program.rank, number) // (2 * microbatches))
        peers = {"sends": (peer,)} if is_sent else {"receives": (peer,)}
        return program.exchange(world, 20_000_000, ns, stream=stream, after=after, **peers)

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for is_forward, _ in one_forward_one_backward(program.rank, stages, microbatches, 1):
            way = 1 if is_forward else -1
            stream, needed = COMM_STREAM + (0 if is_forward else 2), ()
            if 0 <= program.rank - way < stages:
                needed = (message(program, number, program.rank - way, stream, is_sent=False, after=()),)
            made = layer_of_after(
                program, f"{'for' if is_forward else 'back'}ward_gemm", 500_000 * (3 - way) // 2, needed
            )
            if 0 <= program.rank + way < stages:
                message(program, number, program.rank + way, stream + 1, is_sent=True, after=(made,))
        optimizer(program, ())

    return job_of(stages, steps, step, (world,), faults)


def retried(ranks: int = 8, steps: int = 6, faults: Faults = ()) -> Job:
    """Data parallel; one all-reduce of a step is sent again (`link`): all ranks of it move data longer."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(10):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 15_000, _SHAPES)
            again_ns = time_ns(faults, "link", program.rank, number) if layer == 6 else 0
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000 + again_ns, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def hot_experts(ranks: int = 4, steps: int = 6, faults: Faults = (), *, layers: int = 4, tokens: int = 3_000) -> Job:
    """Experts of one rank get tokens of the others (`hot`: their kernels' time a step): its exchanges last longer, too."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        calls = 2 * layers
        more = [time_ns(faults, "hot", rank, number) // calls // 100 for rank in range(ranks)]
        hot = [tokens + each - (sum(more) - each) // (ranks - 1) for each in more]
        own = hot[program.rank]
        sent, received = tuple(count // ranks * 768 for count in hot), (own // ranks * 768,) * ranks
        for _ in range(calls):
            made = layer_of(program, "aten::linear", "dense_gemm", 200_000, 12_000, _SHAPES)
            came = program.exchange_unevenly(world, sent, received, 20 * own, after=(made,))
            with program.range("aten::_grouped_mm", "operator", f"[[{own}, 768], [8, 768, 3072]]"):
                program.host(12_000)
                made = program.kernel("expert_gemm", 100 * own, after=(came,))
            back = program.exchange_unevenly(world, received, sent, 20 * own, after=(made,))
            program.kernel("combine", 30_000, after=(back,))
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


def with_buffers(ranks: int = 4, steps: int = 5, faults: Faults = (), *, buffers: int = 24) -> Job:
    """Data parallel that broadcasts its buffers before each forward pass."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        sent = -1
        for _ in range(buffers):
            program.host(4_000)
            sent = program.collective("broadcast", world, 2_048, 12_000, after=(program.launched - 1,))
        reduced = -1
        for layer in range(12):
            made = layer_of_after(program, "gemm", 500_000, (sent,) if layer == 0 else ())
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def unbucketed(ranks: int = 4, steps: int = 4, faults: Faults = (), *, tensors: int = 240) -> Job:
    """An all-reduce for each parameter, small ones, each beside no more than a small kernel."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(8):
            layer_of(program, "aten::linear", "forward_gemm", 300_000, 10_000, _SHAPES)
        reduced = -1
        for _ in range(tensors):
            made = layer_of(program, "aten::mm", "backward_gemm", 12_000, 6_000, _SHAPES)
            reduced = program.collective("all_reduce", world, 20_000, 30_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def scattered_last(ranks: int = 8, steps: int = 5, faults: Faults = ()) -> Job:
    """ZeRO-2 in one piece: the whole gradient is scattered after backward, the parameters gathered after the optimizer."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(12):
            layer_of(
                program, "aten::linear", "forward_gemm" if layer < 6 else "backward_gemm", 500_000, 12_000, _SHAPES
            )
            if layer == 1:
                strike(program, faults, number)
        made = program.collective("reduce_scatter", world, 400_000_000, 3_000_000, after=(program.launched - 1,))
        optimizer(program, (made,))
        program.collective("all_gather", world, 60_000_000, 400_000, after=(program.launched - 1,))

    return job_of(ranks, steps, step, (world,), faults)


def contended(ranks: int = 4, steps: int = 5, faults: Faults = (), *, times: float = 1.8) -> Job:
    """Kernels beside all-reduces take longer than the same kernels alone; all-reduces run beside half of them."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(24):
            is_beside = layer % 2 == 1
            ns = round(500_000 * (times if is_beside else 1))
            made = layer_of(program, "aten::linear", "gemm", ns, 12_000, _SHAPES)
            if not is_beside:
                reduced = program.collective("all_reduce", world, 30_000_000, 850_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def checkpointed(ranks: int = 4, steps: int = 6, faults: Faults = ()) -> Job:
    """A checkpoint is copied out in the background of a step (`copy`), and all-reduces take as much longer (`link`)."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, (), number)
        copy_ns, slow_ns = (time_ns(faults, what, program.rank, number) for what in ("copy", "link"))
        if copy_ns:
            program.copy("DtoH", 256 << 20, copy_ns, stream=COPY_STREAM + 2)
        reduced = -1
        for _ in range(10):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 12_000, _SHAPES)
            reduced = program.collective("all_reduce", world, 40_000_000, 380_000 + slow_ns // 10, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), ())


def blocking(ranks: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Every host waits for each collective that it launched before it goes on."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        reduced = -1
        for layer in range(16):
            made = layer_of(program, "aten::linear", "gemm", 200_000, 60_000, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
            reduced = program.collective("all_reduce", world, 2_000_000, 80_000, after=(made, program.launched - 1))
            program.sync("cudaStreamSynchronize", after=(reduced,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def rings(parts: int = 4, data: int = 2, steps: int = 5, faults: Faults = (), *, layers: int = 3) -> Job:
    """Rings of attention in data parallelism: keys go round while blocks are computed; `link` slows what a rank sends.

    As in PyTorch, what is sent waits for what was launched before.
    """
    lines = [Group(f"cp{n}", tuple(range(n * parts, (n + 1) * parts)), "cp") for n in range(data)]
    world = Group("world", tuple(range(parts * data)))

    def step(program: Program, number: int) -> None:
        line, place = lines[program.rank // parts], program.rank % parts
        following, before = line.ranks[(place + 1) % parts], line.ranks[(place - 1) % parts]
        load(program, faults, number)
        slow_ns = max(time_ns(faults, "link", rank, number) for rank in (program.rank, before)) // (
            layers * (parts - 1)
        )
        for layer in range(layers):
            held = layer_of(program, "aten::linear", "qkv_gemm", 300_000, 12_000, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
            computed, sent = max(held, program.launched - 1), -1
            for part in range(parts):
                needed, last = (sent,) * (part > 0), part == parts - 1
                if not last:
                    sent = program.exchange(line, 8_000_000, 150_000 + slow_ns, sends=(following,), receives=(before,),
                                            after=(computed,))  # fmt: skip
                with program.range("aten::scaled_dot_product_attention", "operator", _SHAPES):
                    program.host(12_000)
                    computed = program.kernel("flash_fwd", 350_000, after=needed)
        reduced = program.collective("all_reduce", world, 8_000_000, 300_000, stream=COMM_STREAM + 1,
                                     after=(program.launched - 1,))  # fmt: skip
        optimizer(program, (reduced,))

    return job_of(parts * data, steps, step, (*lines, world), faults)


def chained(groups: int = 3, each: int = 4, steps: int = 5, faults: Faults = ()) -> Job:
    """Groups that share two ranks with the next one; all their collectives are on one stream of each rank."""
    overlapping = [Group(f"g{n}", tuple(range(n * (each - 2), n * (each - 2) + each))) for n in range(groups)]
    ranks = overlapping[-1].ranks[-1] + 1

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        own = [group for group in overlapping if program.rank in group.ranks]
        reduced: tuple[int, ...] = ()
        for layer in range(8):
            made = layer_of(program, "aten::linear", "gemm", 500_000, 12_000, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
            reduced = tuple(program.collective("all_reduce", group, 4_000_000, 120_000, after=(made,)) for group in own)
        optimizer(program, reduced)

    return job_of(ranks, steps, step, tuple(overlapping), faults)


def hooked(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 10) -> Job:
    """Gradients are handed to a hook of Python before they are reduced; `hook` is its time a step on a rank."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 12_000, _SHAPES)
        reduced = -1
        hook_ns = 20_000 + time_ns(faults, "hook", program.rank, number) // layers
        for _ in range(layers):
            made = layer_of(program, "aten::linear_backward", "backward_gemm", 400_000, 12_000, _SHAPES)
            program.host(hook_ns, "compression.py(41): compress_hook", "frame")
            reduced = program.collective("all_reduce", world, 4_000_000, 120_000, after=(made,))
        optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def served(ranks: int = 5, steps: int = 5, faults: Faults = ()) -> Job:
    """Workers send their gradients to rank 0, which adds them one by one, steps (`adam`) and broadcasts the parameters."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        made = 0
        for layer in range(10):
            made = layer_of(program, "aten::linear", "gemm", 400_000, 12_000, _SHAPES)
            if layer == 1:
                strike(program, faults, number)
        adam_ns = time_ns(faults, "adam", program.rank, number)
        if program.rank:
            made = program.exchange(world, 10_000_000, 200_000, sends=(0,), after=(made,))
        else:
            for peer in range(1, ranks):
                came = program.exchange(world, 10_000_000, 200_000, receives=(peer,), after=(made,))
                with program.range("aten::add_", "operator", "[[10000000], [10000000]]"):
                    made = program.kernel("vectorized_add", 30_000, after=(came,))
        if adam_ns:
            with program.range("Optimizer.step#AdamW.step"), program.range("aten::_fused_adamw_", "operator"):
                program.host(10_000)
                made = program.kernel("adam", adam_ns, after=(made,), stream=COMPUTE_STREAM)
        program.collective("broadcast", world, 10_000_000, 150_000, after=(made,))

    return job_of(ranks, steps, step, (world,), faults)


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
