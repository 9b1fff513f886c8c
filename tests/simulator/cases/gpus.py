"""GPUs that are slower at the same work: hot, capped, shared, sliced, of another model, with other kernels."""

from functools import partial
from pathlib import Path
from typing import Any

from tests.simulator import spoiled
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import HEALTHY, MS, Case, Truth, case_of, nobody, on_nodes, several
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    accumulating,
    context_parallel,
    cubes,
    data_parallel,
    gpus,
    host_pauses,
    launches,
    pipelines,
    serving,
    sharded,
    tensor_parallel,
)
from tests.simulator.noise import Noise, like_hosts, unlike_hosts, with_noise


def _of_device(*ranks: int, **properties: object) -> spoiled.Spoil:
    return spoiled.edited(ranks, lambda document: document["deviceProperties"][0].update(properties))


def _slice(folder: Path) -> None:
    _of_device(0, 2, 3, numSms=132)(folder)
    _of_device(1, numSms=60)(folder)


def _on_host(device: int | None, rank: int) -> spoiled.Spoil:
    """Of four GPUs that each rank sees it runs on one; of one, on that."""

    def change(document: dict[str, Any]) -> None:
        count = 1 if device is None else 4
        document["deviceProperties"] = [{"id": number, "name": "NVIDIA H200"} for number in range(count)]
        document["hostname"] = "b07"
        for event in document["traceEvents"]:
            if "device" in event["args"]:
                event["args"]["device"] = device or 0

    return spoiled.edited((rank,), change)


def _on_one(folder: Path) -> None:
    for rank in range(4):
        _on_host(min(rank, 2), rank)(folder)


def _hidden_from_each_other(folder: Path) -> None:
    for rank in range(4):
        _on_host(None, rank)(folder)


GPUS: tuple[Case, ...] = (
    several("two GPUs, slower by other factors", with_noise(usual.ddp, Noise(621, 0.2, 0.01, 0.1)),
            (Fault("throttle", 0, (2,), None, 1.5), Fault("throttle", 0, (5,), None, 1.25)),
            Truth((2,), "compute", "the same kernels take 1.5", others=(5,)), left=(Fault("throttle", 0, (5,), None, 1.25),)),
    several("a slow GPU among slower hosts' GPUs", with_noise(usual.hsdp, like_hosts(622)),
            (Fault("throttle", 0, (9,), None, 1.6), Fault("throttle", 0, (3, 4), None, 1.2)),
            Truth((9,), "compute", "the same kernels take 1.6", others=(3, 4)),
            left=(Fault("throttle", 0, (3, 4), None, 1.2),)),
    nobody("all clocks rise in the first step", "^In step 0, the capture's first, all 4 GPUs take", usual.ddp,
           Fault("throttle", 0, (0, 1, 2, 3), (0,), 1.8), ranks=4),
    nobody("all clocks rise in two steps, sharded", "^In steps 0 and 1, the capture's first, all 8 GPUs take", usual.fsdp,
           Fault("throttle", 0, tuple(range(8)), (0, 1), 1.4), steps=6),
    case_of("all clocks rise in the first step, one GPU stays slower", with_noise(usual.ddp, like_hosts(620)),
            Fault("throttle", 0, (2,), (1, 2, 3, 4), 1.4), "the same kernels", left=(Fault("throttle", 0,
            (0, 1, 2, 3), (0,), 1.4),), ranks=4),
    case_of("a GPU gets hotter and hotter", gpus.heated, Fault("heat", 0, (5,)), "the same kernels take",
            cause="compute"),
    case_of("another process has a GPU in time slices", gpus.shared, Fault("slices", 2_500_000, (2,)), "another process has",
            cause="compute"),
    case_of("another process has one of two GPUs", partial(gpus.shared, every_ns=9 * MS), Fault("slices", 1_900_000, (1,)),
            "another process has", cause="compute", ranks=2, steps=8),
    case_of("memory-bound kernels alone are slower", gpus.slow_memory, Fault("memory", 0, (2,), None, 1.8),
            "aten::gelu", cause="compute", how=Capture(offset_ns={2: 30 * MS})),
    case_of("other kernels for the same products", gpus.other_library, Fault("library", 0, (1,), None, 1.35),
            "aten::linear", cause="compute"),
    case_of("passed on through three kinds of groups", cubes.cube, Fault("throttle", 0, (5,), None, 1.4),
            "the same kernels take 1.4", tensor=4,
            how=Capture(offset_ns={rank: 3 * rank * MS for rank in range(16)})),
    case_of("heat moves from one node to another", usual.ddp,
            Fault("throttle", 0, (8, 9, 10, 11), (2, 3, 4, 5, 6), 1.45), "the same kernels take", ranks=16, steps=7,
            layers=5, left=(Fault("throttle", 0, (0, 1, 2, 3), (0, 1), 1.3),), others=(0, 1, 2, 3)),
    case_of("attention by heads, a GPU throttled", context_parallel.by_heads, Fault("throttle", 0, (6,), None, 1.3),
            "the same kernels take 1.3"),
    several("a cube, heat grows", cubes.interleaved_cube,
            tuple(Fault("throttle", 0, (5,), (2 + at,), times) for at, times in enumerate((1.2, 1.4, 1.6, 1.8))),
            Truth((5,), "compute", "the same kernels take"), stages=2, chunks=1, micro=8, steps=6,
            noise=unlike_hosts(103)),
    case_of("gathered ahead, products in 32 bits", sharded.prefetching, Fault("dtype", 0, (3,)), "mm",
            cause="compute", noise=unlike_hosts(114)),
    case_of("sharded over 64, one GPU hot", with_noise(usual.fsdp, unlike_hosts(162)),
            Fault("throttle", 0, (37,), None, 1.35), "the same kernels take", ranks=64, steps=3, layers=3),
    case_of("two GPUs of a node capped for some steps", on_nodes(with_noise(usual.hsdp, unlike_hosts(214)), 4),
            Fault("throttle", 0, (4, 5), (2, 3), 1.35), "the same kernels take", shard=4, replicate=4, steps=6),
    case_of("products in 32 bits on a rank of a pair", tensor_parallel.precise, Fault("wide", 0, (6,)), "mm",
            cause="compute", noise=unlike_hosts(215)),
    case_of("gossip, a hot GPU", data_parallel.gossip, Fault("throttle", 0, (1,), None, 1.4), "the same kernels take",
            noise=unlike_hosts(306)),
    case_of("norms over all ranks, a hot GPU", tensor_parallel.normed, Fault("throttle", 0, (3,), None, 1.2),
            "the same kernels take", noise=unlike_hosts(314)),
    nobody("healthy, two kinds of GPUs, batches in proportion", "", gpus.two_kinds, noise=unlike_hosts(319)),
    case_of("two kinds of GPUs, batches alike", gpus.two_kinds, Fault("alike", 0, (4, 5, 6, 7)), "A100",
            cause="compute", noise=unlike_hosts(320)),
    case_of("another process on a GPU", gpus.next_door, Fault("shared", 0, (5,)), "the same kernels take",
            cause="compute", noise=unlike_hosts(321)),
    case_of("hosts wait for messages, two replicas, a hot GPU", pipelines.stopping,
            Fault("throttle", 0, (5,), None, 1.4), "the same kernels take", data=2, noise=like_hosts(330)),
    case_of("decoding by stages, a hot GPU", serving.token_by_token, Fault("throttle", 0, (2,), None, 1.35), "",
            noise=like_hosts(337)),
    case_of("a rack of 64 at lower clocks", on_nodes(with_noise(usual.hsdp, unlike_hosts(346)), 8),
            Fault("throttle", 0, tuple(range(32, 64)), None, 1.25), "the same kernels take", shard=8, replicate=8,
            steps=3, layers=2),
    case_of("micro-batches are steps, a hot GPU", accumulating.micro_stepped, Fault("throttle", 0, (1,), None, 1.3),
            "the same kernels take", noise=unlike_hosts(403)),
    several("heat goes round", with_noise(usual.ddp, unlike_hosts(421)),
            tuple(Fault("throttle", 0, (at,), (2 * at, 2 * at + 1), 1.4) for at in range(4)),
            Truth((0, 1, 2, 3), "compute", ""), ranks=4, steps=9),
    case_of("a GPU brakes in every third step", with_noise(usual.hsdp, unlike_hosts(422)),
            Fault("throttle", 0, (6,), (1, 4), 1.5), "the same kernels take", shard=4, replicate=2, steps=7),
    case_of("heat grows", gpus.heating, Fault("throttle", 0, (2,), (1, 2, 3, 4, 5, 6, 7)), "the same kernels take",
            has_gain=True),
    case_of("tensor pair with a slow GPU", usual.tp_dp, Fault("throttle", 0, (5,), None, 1.3),
            "the same kernels take 1.3", tensor=2, data=4),
    case_of("throttled in the second half", usual.ddp, Fault("throttle", 0, (3,), (4, 5, 6, 7), 1.3),
            "the same kernels take 1.3", ranks=4, steps=8),
    case_of("throttled throughout", usual.ddp, Fault("throttle", 0, (3,), None, 1.3), "the same kernels take 1.3",
            ranks=4),
    case_of("throttled, a sharded job", usual.fsdp, Fault("throttle", 0, (1,), None, 1.25),
            "the same kernels take 1.25", ranks=4),
    case_of("slower in backward alone", gpus.slow_backward, Fault("backward", 2 * MS, (1,)), "the same kernels take",
            cause="compute"),
    case_of("a stage that has the loss, a hot GPU", pipelines.with_loss, Fault("throttle", 0, (1,), None, 1.3),
            "the same kernels take 1.3", stages=2, microbatches=4),
    case_of("a stage throttled in half of the steps", usual.pipelined, Fault("throttle", 0, (2,), (3, 4, 5), 1.4),
            "the same kernels take 1.4", stages=4, microbatches=8, steps=8, how=Capture(has_stream_waits=True)),
    case_of("hosts stall at random, one GPU throttled", host_pauses.stalling_hosts,
            Fault("throttle", 0, (2,), None, 1.3), "the same kernels take 1.3"),
    case_of("a slow GPU in each of two tensor groups", usual.tp_dp, Fault("throttle", 0, (1, 6), None, 1.4),
            "the same kernels take 1.4", tensor=2, data=4),
    case_of("throttled at first, then not", usual.ddp, Fault("throttle", 0, (3,), (0, 1, 2), 1.4),
            "the same kernels take 1.4", ranks=4, steps=8),
    case_of("continuous batching, a slow GPU", serving.continuous_batching, Fault("throttle", 0, (1,), None, 1.5),
            "the same kernels take 1.5", has_gain=False),
    case_of("a GPU of another model", gpus.other_gpu, Fault("other", 0, (2,)), "A100", cause="compute"),
    case_of("accumulating, a GPU slower in two steps", accumulating.accumulating,
            Fault("throttle", 0, (2,), (2, 3), 1.4), "the same kernels take 1.4", steps=6),
    case_of("limited prefetch, a GPU throttled", sharded.limited, Fault("throttle", 0, (6,), None, 1.25),
            "the same kernels take 1.2"),
    # Where it is guessed what streams wait for, the gain of parts that go round is said 15 % too small.
    case_of("products by chunks, a GPU throttled", tensor_parallel.chunked_tensor,
            Fault("throttle", 0, (2,), None, 1.35), "the same kernels take 1.3", how=Capture(has_stream_waits=True)),
    case_of("replayed graphs, a GPU throttled", launches.replayed, Fault("throttle", 0, (2,), None, 1.3),
            "the same kernels take 1.3"),
    case_of("a ring in data parallelism, a GPU is throttled", context_parallel.rings,
            Fault("throttle", 0, (6,), None, 1.4), "the same kernels take 1.4"),
    case_of("a MIG slice", usual.ddp, Fault("throttle", 0, (2,), None, 1.9), "MIG",
            spoil=_of_device(2, name="NVIDIA H200 MIG 3g.71gb"), ranks=4),
    case_of("a slice of a GPU, by its multiprocessors", usual.ddp, Fault("throttle", 0, (1,), None, 1.9),
            "smaller (60 multiprocessors", spoil=_slice, ranks=4, steps=3),
    nobody("two ranks on one GPU", "Ranks 2 and 3 run on one GPU", usual.ddp, Fault("throttle", 0, (2, 3), None, 1.9),
            ranks=4, steps=3, others=(2, 3), spoil=_on_one),
    nobody("every rank's GPU is its number 0", HEALTHY, usual.ddp, ranks=4, steps=3, spoil=_hidden_from_each_other),
    case_of("a throttled rank of a tensor group", usual.tp_dp, Fault("throttle", 0, (6,), None, 1.35),
            "the same kernels take 1.3", tensor=4, data=2, steps=3),
)  # fmt: skip
