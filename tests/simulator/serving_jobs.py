"""Jobs that generate: batches that change from iteration to iteration, drafts, prefill apart, rollouts before training."""

import random

from tests.simulator.faults import Faults, strike, time_ns
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, optimizer

_SHAPES = "[[8, 4096], [4096, 4096]]"


def continuous_batching(ranks: int = 4, iterations: int = 30, faults: Faults = (), *, layers: int = 6,
                        schedule_ns: int = 300_000, seed: int = 1) -> Job:  # fmt: skip
    """Tensor parallel serving without marked steps: prefills now and then, decodes of other lengths each time."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)
    tokens = [chance.choice((8, 8, 8, 12, 16, 700)) for _ in range(iterations)]

    def step(program: Program, number: int) -> None:
        with program.range("schedule"):
            program.host(
                schedule_ns + time_ns(faults, "host", program.rank, number), "scheduler.py(70): schedule", "frame"
            )
        for layer in range(layers):
            made = layer_of(program, "aten::mm", "gemm", 20_000 + 400 * tokens[number], 3_000,
                            f"[[{tokens[number]}, 4096], [4096, 4096]]")  # fmt: skip
            if layer == 1:
                strike(program, tuple(fault for fault in faults if fault.what != "host"), number)
                made = program.launched - 1
            reduced = program.collective("all_reduce", world, 4096 * tokens[number], 8_000, stream=7, after=(made,))
            program.kernel("flash_fwd_splitkv", 15_000 + 100 * tokens[number], after=(reduced,))
        with program.range("sample"), program.range("aten::item", "operator"):
            program.sync("cudaStreamSynchronize")

    return job_of(ranks, iterations, step, (world,), faults, has_steps=False, ends_synced=False)


def speculative(ranks: int = 2, steps: int = 8, faults: Faults = (), *, drafts: int = 4, layers: int = 6) -> Job:
    """A small model drafts tokens one by one, a large one verifies them; hosts read how many hold."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        with program.range("draft"):
            for _ in range(drafts):
                for _ in range(layers):
                    layer_of(program, "aten::mm", "draft_gemm", 5_000, 8_000, _SHAPES)
                program.sync("cudaStreamSynchronize")
        with program.range("verify"):
            for layer in range(layers):
                made = layer_of(program, "aten::mm", "verify_gemm", 90_000, 8_000, _SHAPES)
                if layer == 1:
                    strike(program, faults, number)
                    made = program.launched - 1
                program.collective("all_reduce", world, 100_000, 10_000, stream=7, after=(made,))
        with program.range("aten::item", "operator"):
            program.sync("cudaStreamSynchronize")
        program.host(60_000, "accept", "range")

    return job_of(ranks, steps, step, (world,), faults, ends_synced=False)


def prefill_apart(prefillers: int = 2, decoders: int = 2, steps: int = 6, faults: Faults = (), *,
                  prefill_ns: int = 6_000_000, decode_ns: int = 2_000_000) -> Job:  # fmt: skip
    """Some ranks prefill and send keys and values; each has a decoder that receives and decodes them."""
    world = Group("0", tuple(range(prefillers + decoders)))

    def step(program: Program, number: int) -> None:
        strike(program, faults, number)
        if program.rank < prefillers:
            with program.range("prefill"):
                for _ in range(10):
                    made = layer_of(
                        program, "aten::mm", "prefill_gemm", prefill_ns // 10, 10_000, "[[8192, 4096], [4096, 4096]]"
                    )
            program.exchange(world, 8_000_000, 80_000, sends=(program.rank + prefillers,), after=(made,))
            return
        got = program.exchange(world, 8_000_000, 80_000, receives=(program.rank - prefillers,))
        with program.range("decode"):
            for _ in range(20):
                program.host(5_000)
                program.kernel("decode_gemm", decode_ns // 20, after=(got,))
        with program.range("aten::item", "operator"):
            program.sync("cudaStreamSynchronize")

    return job_of(prefillers + decoders, steps, step, (world,), faults, ends_synced=False)


def rollouts(
    ranks: int = 4, steps: int = 5, faults: Faults = (), *, tokens: int = 40, spread: int = 0, seed: int = 2
) -> Job:
    """Every rank generates token by token until its longest answer ends, then all train; `host`: longer answers."""
    world = Group("0", tuple(range(ranks)))
    chance = random.Random(seed)
    more = {(rank, step): chance.randint(0, spread) for rank in range(ranks) for step in range(steps)}

    def step(program: Program, number: int) -> None:
        longer = time_ns(faults, "answers", program.rank, number) // 75_000 + more[program.rank, number]
        with program.range("generate"):
            for _ in range(tokens + longer):
                for _ in range(3):
                    layer_of(program, "aten::mm", "decode_gemm", 12_000, 20_000, _SHAPES)
            program.sync("cudaStreamSynchronize")
        with program.range("train"):
            strike(program, faults, number)
            for _ in range(6):
                made = layer_of(program, "aten::linear", "train_gemm", 500_000, 12_000, "[[4096, 4096], [4096, 4096]]")
                reduced = program.collective("all_reduce", world, 4_000_000, 150_000, after=(made,))
            optimizer(program, (reduced,))

    return job_of(ranks, steps, step, (world,), faults)


def actors_and_learners(steps: int = 5, faults: Faults = (), *, learn_ns: int = 3_000_000) -> Job:
    """Ranks 0 and 1 learn, 2 and 3 act: samples go to the learners, weights come back; `act`: it takes actors longer."""
    world, learners = Group("0", (0, 1, 2, 3)), Group("1", (0, 1), "learners")

    def step(program: Program, number: int) -> None:
        strike(program, faults, number)
        if program.rank >= 2:
            act_ns = learn_ns + time_ns(faults, "act", program.rank, number)
            with program.range("act"):
                for _ in range(16):
                    made = layer_of(program, "aten::mm", "act_gemm", act_ns // 16, 10_000, _SHAPES)
        else:
            made = layer_of(program, "aten::zeros", "fill", 5_000, 5_000, "")
        got = program.collective("all_gather", world, 1_000_000, 60_000, after=(made,))
        if program.rank < 2:
            with program.range("learn"):
                for _ in range(8):
                    made = layer_of(
                        program, "aten::linear", "learn_gemm", learn_ns // 8, 10_000, "[[4096, 4096], [4096, 4096]]"
                    )
                    got = program.collective(
                        "all_reduce", learners, 2_000_000, 60_000, stream=COMM_STREAM + 1, after=(made, got)
                    )
            optimizer(program, (got,))
            got = program.launched - 1
        program.collective("broadcast", world, 16_000_000, 200_000, after=(got,))

    return job_of(4, steps, step, (world, learners), faults)
