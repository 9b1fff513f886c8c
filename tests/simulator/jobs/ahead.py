"""Jobs whose parts run beside each other: generators a step ahead of trainers, shards held over micro-batches."""

from tests.simulator.faults import Faults, load, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import TOKEN_SHAPES, WIDE_BACK_SHAPES, after_of, layer_of, noisy_job, optimizer


def a_step_behind(trainers: int = 4, generators: int = 2, steps: int = 5, faults: Faults = (), *, layers: int = 6,
                  noise: Noise | None = None) -> Job:  # fmt: skip
    """Generators answer for the next step while trainers train on the last one's; then all exchange answers and weights.

    `answer`: a generator takes longer; its tokens are launched in graphs. Trainers need longer where nothing is wrong.
    """
    ranks = trainers + generators
    world, own = Group("world", tuple(range(ranks)), "weights"), Group("train", tuple(range(trainers)), "dp")

    def step(program: Program, number: int) -> None:
        if program.rank < trainers:
            load(program, faults, number)
            for layer in range(2 * layers):
                is_forward = layer < layers
                made = after_of(program, "aten::linear" if is_forward else "AddmmBackward0",
                                "forward_gemm" if is_forward else "backward_gemm", 300_000 if is_forward else 600_000, ())  # fmt: skip
                if layer == 1:
                    strike(program, faults, number)
                if not is_forward:
                    made = program.collective(
                        "all_reduce", own, 9_000_000, 180_000, stream=COMM_STREAM + 1, after=(made,)
                    )
            optimizer(program, (made,))
        else:
            with program.range("generate"):
                for _ in range(20):
                    program.host(25_000, "scheduler.py(88): schedule", "frame")
                    more_ns = time_ns(faults, "answer", program.rank, number) // 20
                    program.graph([("paged_attention", 50_000 + more_ns), ("decode_mlp", 90_000)])
                    strike(program, faults, number) if not program.launched % 40 else None
        made = program.launched - 1
        with program.range("update_weights"):
            got = program.collective("all_gather", world, 500_000, 40_000, after=(made,))
            for _ in range(4):
                program.host(8_000)
                got = program.collective("broadcast", world, 40_000_000, 150_000, after=(got,))
            after_of(program, "aten::copy_", "copy_kernel", 30_000, (got,), 9_000, TOKEN_SHAPES)

    return noisy_job(ranks, steps, step, (world, own), faults, noise)


def held_over(ranks: int = 4, steps: int = 4, faults: Faults = (), *, micro: int = 4, layers: int = 4,
              noise: Noise | None = None) -> Job:  # fmt: skip
    """Parameters are gathered in the first micro-batch and held to the last, where gradients are scattered; `strike` in the third."""
    world = Group("0", tuple(range(ranks)), "fsdp")

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for part in range(micro):
            for layer in range(layers):
                needed = (program.collective("all_gather", world, 12_000_000, 120_000),) if not part else ()
                after_of(program, "aten::linear", "forward_gemm", 200_000, needed)
                if layer == 1 and part == 2:
                    strike(program, faults, number)
            for _ in range(layers):
                made = after_of(program, "AddmmBackward0", "backward_gemm", 400_000, (), 14_000, WIDE_BACK_SHAPES)
                if part == micro - 1:
                    made = program.collective(
                        "reduce_scatter", world, 12_000_000, 130_000, stream=COMM_STREAM + 1, after=(made,)
                    )
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)


def pinned_anew(
    ranks: int = 4, steps: int = 6, faults: Faults = (), *, layers: int = 6, noise: Noise | None = None
) -> Job:
    """Batches of another size are pinned by the main thread before they are copied; `pin`: the call for pinned memory takes long."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        pin_ns = time_ns(faults, "pin", program.rank, number)
        if pin_ns:
            with program.range("aten::pin_memory", "operator"):
                program.host(pin_ns, "cudaHostAlloc", "call")
        for layer in range(2 * layers):
            is_forward = layer < layers
            made = layer_of(program, "aten::linear" if is_forward else "AddmmBackward0",
                            "forward_gemm" if is_forward else "backward_gemm", 250_000 if is_forward else 500_000, 14_000)  # fmt: skip
            if layer == 1:
                strike(program, faults, number)
            if not is_forward:
                made = program.collective("all_reduce", world, 9_000_000, 180_000, after=(made,))
        optimizer(program, (made,))

    return noisy_job(ranks, steps, step, (world,), faults, noise)
