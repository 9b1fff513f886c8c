"""Jobs whose ranks do unlike things: servers of parameters, evaluators, loaders with a GPU, actors and critics, an encoder for many."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program
from tests.simulator.workloads import (
    WIDE_BACK_SHAPES,
    WIDE_SHAPES,
    after_of,
    layer_of,
    noisy_job,
    one_forward_one_backward,
    optimizer,
)

_PICTURES = "[[64, 3, 224, 224], [64, 3, 7, 7]]"


def served(workers: int = 4, servers: int = 2, steps: int = 5, faults: Faults = (), *, layers: int = 6,
           noise: Noise | None = None) -> Job:  # fmt: skip
    """Workers send gradients to servers, which apply them and send parameters back. `apply`: a server takes longer for it."""
    world = Group("0", tuple(range(workers + servers)))

    def work(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 300_000, 14_000, WIDE_SHAPES)
            if layer == 1:
                strike(program, faults, number)
        for layer in range(layers):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 600_000, 14_000, WIDE_BACK_SHAPES)
            program.exchange(world, 4_000_000, 60_000, sends=(workers + layer % servers,), after=(made,))
        for server in range(servers):
            program.exchange(world, 12_000_000, 150_000, receives=(workers + server,), stream=COMM_STREAM + 1)

    def serve(program: Program, number: int) -> None:
        more_ns = time_ns(faults, "apply", program.rank, number) // (layers // servers)
        for _ in range(layers // servers):
            got = program.exchange(world, 4_000_000, 60_000, receives=tuple(range(workers)))
            with program.range("server.apply"):
                made = after_of(program, "aten::_fused_adamw_", "adam", 120_000 + more_ns, (got,), 20_000,
                                f"[[{4_000_000 + 30 * more_ns}]]")  # fmt: skip
        program.exchange(world, 12_000_000, 150_000, sends=tuple(range(workers)), stream=COMM_STREAM + 1, after=(made,))

    def step(program: Program, number: int) -> None:
        (work if program.rank < workers else serve)(program, number)

    return noisy_job(workers + servers, steps, step, (world,), faults, noise)


def evaluated_apart(
    trainers: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 8, noise: Noise | None = None
) -> Job:
    """The last rank evaluates the weights that it got a step ago, while the others train; then it gets the next ones.

    `evaluate`: it takes longer for that.
    """
    world = Group("0", tuple(range(trainers + 1)))
    data = Group("1", tuple(range(trainers)), "trainers")

    def train(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            layer_of(program, "aten::linear", "forward_gemm", 300_000, 14_000)
            if layer == 1:
                strike(program, faults, number)
        for _ in range(layers):
            made = layer_of(program, "AddmmBackward0", "backward_gemm", 600_000, 14_000, WIDE_BACK_SHAPES)
            made = program.collective("all_reduce", data, 6_000_000, 170_000, after=(made,))
        optimizer(program, (made,))

    def evaluate(program: Program, number: int) -> None:
        ns = 4_000_000 + time_ns(faults, "evaluate", program.rank, number)
        with program.range("evaluate"):
            for _ in range(10):
                layer_of(program, "aten::conv2d", "eval_conv", ns // 10, 14_000, _PICTURES)
            program.copy("DtoH", 4096, 4_000, stream=COMPUTE_STREAM)
            program.sync("cudaStreamSynchronize")
            program.host(300_000, "eval.py(40): metrics", "frame")
            program.kernel("fill", 3_000)

    def step(program: Program, number: int) -> None:
        (train if program.rank < trainers else evaluate)(program, number)
        program.collective(
            "broadcast", world, 30_000_000, 250_000, stream=COMM_STREAM + 1, after=(program.launched - 1,)
        )

    return noisy_job(trainers + 1, steps, step, (world, data), faults, noise)


def fanned_out(
    steps: int = 4, faults: Faults = (), *, micro: int = 6, encode_ns: int = 250_000, noise: Noise | None = None
) -> Job:
    """Rank 0 encodes pictures for two pipelines of two stages: 1 and 3, 2 and 4, whose stages reduce with each other.

    The encoder is frozen: no gradients come back. `encode`: it takes longer.
    """
    world = Group("0", tuple(range(5)), "pp")
    columns = {1: Group("1", (1, 2), "dp"), 3: Group("2", (3, 4), "dp")}

    def encode(program: Program, number: int) -> None:
        load(program, faults, number)
        ns = encode_ns + time_ns(faults, "encode", 0, number) // (2 * micro)
        for _ in range(micro):
            for target in (1, 2):
                made = layer_of(
                    program, "aten::conv2d", "vit_conv", ns, 14_000, f"[[64, 3, {ns // 1000}, 224], [64, 3, 7, 7]]"
                )
                program.exchange(world, 2_000_000, 40_000, sends=(target,), stream=COMM_STREAM + target, after=(made,))

    def stage(program: Program, number: int) -> None:
        place = (program.rank - 1) // 2
        for at, (is_forward, _) in enumerate(one_forward_one_backward(place, 2, micro, 1)):
            needed: tuple[int, ...] = ()
            stream = COMM_STREAM + (0 if is_forward else 2)
            if is_forward or not place:
                source = max(program.rank - 2, 0) if is_forward else program.rank + 2
                needed = (program.exchange(world, 2_000_000, 40_000, receives=(source,), stream=stream),)
            name, ns = ("forward", 500_000) if is_forward else ("backward", 1_000_000)
            made = after_of(program, "aten::linear", f"{name}_gemm", ns, needed)
            if at == 1:
                strike(program, faults, number)
                made = program.launched - 1
            if is_forward is not bool(place):
                target = program.rank + (2 if is_forward else -2)
                program.exchange(world, 2_000_000, 40_000, sends=(target,), stream=stream + 1, after=(made,))
        column = columns[1 + 2 * place]
        made = program.collective("all_reduce", column, 20_000_000, 300_000, stream=COMM_STREAM + 5, after=(made,))
        optimizer(program, (made,))

    def step(program: Program, number: int) -> None:
        (stage if program.rank else encode)(program, number)

    return noisy_job(5, steps, step, (world, *columns.values()), faults, noise)
