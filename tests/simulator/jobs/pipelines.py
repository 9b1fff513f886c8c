"""Single pipelines, told apart by schedule and by what a stage has more of."""

from tests.simulator.faults import Faults, load, strike
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import (
    SHAPES,
    WIDE_SHAPES,
    after_of,
    job_of,
    layer_of,
    microbatch,
    noisy_job,
    one_forward_one_backward,
    optimizer,
    wider,
)
from traceanalyzer.analyses.pipelines.orders import FORWARD, Message, Pass, needs, order_of, with_messages


def with_loss(stages: int = 4, microbatches: int = 8, steps: int = 4, faults: Faults = (), *, chunks: int = 1,
              loss_ns: int = 400_000) -> Job:  # fmt: skip
    """A pipeline whose last stage also multiplies by the vocabulary, in forward and backward of each microbatch."""
    world = Group("0", tuple(range(stages)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for place, (is_forward, chunk) in enumerate(
            one_forward_one_backward(program.rank, stages, microbatches, chunks)
        ):
            stage = chunk * stages + program.rank
            if stage == stages * chunks - 1 and not is_forward:
                layer_of(program, "aten::linear", "vocabulary_gemm", loss_ns, 10_000, "[[4096, 768], [768, 128000]]")
            microbatch(program, world, stage, stages * chunks, 500_000 // chunks, is_forward=is_forward)
            if place == 1:
                strike(program, faults, number)
        optimizer(program, ())

    return job_of(stages, steps, step, (world,), faults)


def interleaved(ranks: int = 4, steps: int = 4, faults: Faults = (), *, microbatches: int = 8, chunks: int = 2,
                forward_ns: int = 500_000, is_one_stream: bool = True) -> Job:  # fmt: skip
    """Interleaved 1F1B; all messages of a rank on one stream, or those of each neighbour and direction on their own."""
    world = Group("0", tuple(range(ranks)))
    order = order_of("interleaved", ranks, microbatches, chunks)
    items = with_messages(order) or {}
    present = {one for passes in order.values() for one in passes}

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        done: dict[Pass, int] = {}
        for item in items[program.rank]:
            if isinstance(item, Message):
                peer, is_send = item.other_end(program.rank)
                own = 2 * ((peer - program.rank) % ranks) + is_send
                stream = COMM_STREAM + (0 if is_one_stream else own)
                peers = {"sends" if is_send else "receives": (peer,)}
                after = (done[item.of],) if is_send else ()
                made = program.exchange(world, 1_000_000, 20_000, stream=stream, after=after, **peers)
                if not is_send:
                    done[item.of] = made
                continue
            after = tuple(done[one] for one in needs(item, ranks * chunks - 1, present))
            name, ns = ("forward_gemm", forward_ns) if item[0] == FORWARD else ("backward_gemm", 2 * forward_ns)
            operator = "aten::linear" if item[0] == FORWARD else "autograd::engine::evaluate_function: AddmmBackward0"
            with program.range("PP:{1}{0}{2}".format(*item)), program.range(operator, "operator", SHAPES):
                program.host(15_000)
                done[item] = program.kernel(name, ns, after=after, stream=COMPUTE_STREAM)
        strike(program, faults, number)
        optimizer(program, ())

    return job_of(ranks, steps, step, (world,), faults)


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
            with program.range("aten::linear" if is_forward else "aten::linear_backward", "operator", WIDE_SHAPES):
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
                layer_of(program, "aten::linear_backward", "weight_gemm", 500_000, 20_000, WIDE_SHAPES)
        optimizer(program, ())

    return noisy_job(stages, steps, step, (world,), faults, noise)


def light_first(stages: int = 4, microbatches: int = 8, steps: int = 3, faults: Faults = (), *,
                stage_ns: tuple[int, ...] = (250_000, 550_000, 550_000, 550_000), noise: Noise | None = None) -> Job:  # fmt: skip
    """All forward, then all backward, again forward in backward; the first stage is light."""
    world = Group("0", tuple(range(stages)), "pp")

    def step(program: Program, number: int) -> None:
        stage, ns = program.rank, stage_ns[program.rank]
        load(program, faults, number)
        for is_forward in (True, False):
            way, stream = 1 if is_forward else -1, COMM_STREAM + (0 if is_forward else 2)
            for place in range(microbatches):
                needed: tuple[int, ...] = ()
                if 0 <= stage - way < stages:
                    needed = (program.exchange(world, 2_000_000, 40_000, receives=(stage - way,), stream=stream),)
                made = after_of(program, "aten::linear", "forward_gemm", ns, needed, shapes=wider(stage_ns, stage))
                if not is_forward:
                    made = after_of(
                        program, "aten::linear_backward", "backward_gemm", 2 * ns, (), shapes=wider(stage_ns, stage)
                    )
                if place == 1 and is_forward:
                    strike(program, faults, number)
                    made = program.launched - 1
                if 0 <= stage + way < stages:
                    program.exchange(world, 2_000_000, 40_000, sends=(stage + way,), stream=stream + 1, after=(made,))
        optimizer(program, ())

    return noisy_job(stages, steps, step, (world,), faults, noise)


def launching(layers: int = 8, steps: int = 5, faults: Faults = (), *, microbatches: int = 6,
              noise: Noise | None = None) -> Job:  # fmt: skip
    """Two stages of small layers, whose hosts launch longer than their GPUs compute; `moved`: layers of the second.

    Its time is no time: as many layers more are the first stage's.
    """
    world = Group("0", (0, 1))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        moved = sum(fault.ns for fault in faults if fault.what == "moved")
        own = layers // 2 + (moved if program.rank == 0 else -moved)
        made = -1
        for is_forward in (True, False):
            stream, other = COMM_STREAM + (0 if is_forward else 2), 1 - program.rank
            receives = (program.rank == 1) == is_forward
            name, ns = ("forward_gemm", 20_000) if is_forward else ("backward_gemm", 40_000)
            for _ in range(microbatches):
                needed: tuple[int, ...] = ()
                if receives:
                    needed = (program.exchange(world, 1_000_000, 30_000, receives=(other,), stream=stream),)
                for _ in range(own):
                    with program.range("aten::linear" if is_forward else "aten::linear_backward", "operator", SHAPES):
                        program.host(100_000)
                        made = program.kernel(name, ns, after=needed)
                if not receives:
                    program.exchange(world, 1_000_000, 30_000, sends=(other,), stream=stream + 1, after=(made,))
        optimizer(program, (made,))

    return noisy_job(2, steps, step, (world,), faults, noise)
