"""Jobs of reinforcement learning after pre-training: weights are handed over, tokens generated, scored, and trained on."""

from tests.simulator.faults import Faults, factor, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, COMPUTE_STREAM, Group, Job, Program, adjacent
from tests.simulator.workloads import TOKEN_SHAPES, WIDE_SHAPES, after_of, layer_of, noisy_job, optimizer


def colocated(
    replicas: int = 4, steps: int = 4, faults: Faults = (), *, tokens: int = 24, noise: Noise | None = None
) -> Job:
    """Sharded training, then generation in tensor pairs on the same GPUs, a token a time, each read by the host.

    `plan`: a rank's scheduler of tokens takes longer; `decode`: its kernels take so many times as long while it generates.
    """
    rows = adjacent("tp", 2, replicas)
    world = Group("world", tuple(range(2 * replicas)), "fsdp")

    def step(program: Program, number: int) -> None:
        with program.range("sync_weights"):
            for _ in range(4):
                got = program.collective("all_gather", world, 30_000_000, 250_000)
                program.copy("DtoD", 60 << 20, 40_000, stream=COMPUTE_STREAM, after=(got,))
        with program.range("generate"):
            _tokens(program, rows[program.rank // 2], faults, number, tokens)
        with program.range("reward"):
            program.host(600_000, "reward.py(31): score", "frame")
        with program.range("update_policy"):
            _trained(program, world, faults, number)

    return noisy_job(2 * replicas, steps, step, (*rows, world), faults, noise)


def _tokens(program: Program, row: Group, faults: Faults, number: int, tokens: int) -> None:
    plan_ns = 30_000 + time_ns(faults, "plan", program.rank, number) // tokens
    times = factor(faults, "decode", program.rank, number)
    for _ in range(tokens):
        program.host(plan_ns, "scheduler.py(88): schedule", "frame")
        for _ in range(2):
            layer_of(program, "aten::mm", "nvjet_tst_64x8_splitK", round(70_000 * times), 9_000, TOKEN_SHAPES)
            program.collective("all_reduce", row, 130_000, 12_000, stream=COMPUTE_STREAM)
        program.sync("cudaStreamSynchronize")


def _trained(program: Program, world: Group, faults: Faults, number: int) -> None:
    held = program.collective("all_gather", world, 30_000_000, 250_000)
    for layer in range(12):
        ready, held = held, program.collective("all_gather", world, 30_000_000, 250_000)
        operator = "aten::linear" if layer < 6 else "autograd::engine::evaluate_function: AddmmBackward0"
        made = after_of(program, operator, "train_gemm", 500_000, (ready,))
        if layer == 1:
            strike(program, faults, number)
        if layer >= 6:
            made = program.collective(
                "reduce_scatter", world, 30_000_000, 250_000, stream=COMM_STREAM + 1, after=(made,)
            )
    optimizer(program, (made,))


def apart(steps: int = 5, faults: Faults = (), *, answers: int = 40, noise: Noise | None = None) -> Job:
    """Ranks 0 to 3 train what ranks 4 and 5 generated; at last rank 0 sends the weights. `answer`: a generator takes longer."""
    world, trainers = Group("0", tuple(range(6)), "weights"), Group("1", (0, 1, 2, 3), "fsdp")

    def step(program: Program, number: int) -> None:
        if number:
            program.kernel("load_weights", 20_000, after=(program.launched - 1,))
        if program.rank >= 4:
            more_ns = time_ns(faults, "answer", program.rank, number) // answers
            with program.range("generate"):
                for _ in range(answers):
                    program.host(12_000)
                    made = program.graph([("paged_attention", 40_000 + more_ns), ("decode_mlp", 80_000)])
            strike(program, faults, number)
        else:
            made = layer_of(program, "aten::zeros", "fill", 4_000, 5_000, "")
        got = program.collective("all_gather", world, 500_000, 30_000, after=(made,))
        if program.rank < 4:
            with program.range("update_policy"):
                for layer in range(8):
                    made = after_of(program, "aten::linear", "train_gemm", 500_000, () if layer else (got,), 14_000,
                                    WIDE_SHAPES)  # fmt: skip
                    if layer == 1:
                        strike(program, faults, number)
                    got = program.collective(
                        "all_reduce", trainers, 6_000_000, 150_000, stream=COMM_STREAM + 1, after=(made,)
                    )
                optimizer(program, (got,))
                got = program.launched - 1
        with program.range("update_weights"):
            for _ in range(6):
                program.host(8_000)
                program.collective("broadcast", world, 20_000_000, 120_000, after=(got,))

    return noisy_job(6, steps, step, (world, trainers), faults, noise)
