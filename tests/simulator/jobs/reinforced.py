"""Jobs of reinforcement learning after pre-training: weights are handed over, tokens generated, scored, and trained on."""

from tests.simulator.faults import Faults, strike, time_ns
from tests.simulator.noise import Noise
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import WIDE_SHAPES, after_of, layer_of, noisy_job, optimizer


def apart(steps: int = 5, faults: Faults = (), *, answers: int = 40, noise: Noise | None = None) -> Job:
    """Ranks 0–3 train what ranks 4 and 5 generated; at last rank 0 sends the weights. `answer`: a generator takes longer."""
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
