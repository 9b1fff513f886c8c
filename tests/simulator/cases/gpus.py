"""GPUs that are slower at the same work: hot, capped, shared, sliced, of another model, with other kernels."""

from functools import partial
from pathlib import Path
from typing import Any

from tests.simulator import spoiled
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    gpus,
    host_pauses,
    launches,
    pipelines,
    serving,
    sharded,
    tensor_parallel,
)
from tests.simulator.noise import like_hosts, unlike_hosts


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
    nobody("all clocks rise in two steps, sharded", "usable_steps", usual.fsdp,
           Fault("throttle", 0, tuple(range(8)), (0, 1), 1.4), steps=6),
    case_of("a GPU gets hotter and hotter", gpus.heated, Fault("heat", 0, (5,)), "same kernels",
            cause="compute"),
    case_of("another process has a GPU in time slices", gpus.shared, Fault("slices", 2_500_000, (2,)), "another process",
            cause="compute"),
    case_of("another process has one of two GPUs", partial(gpus.shared, every_ns=9 * MS), Fault("slices", 1_900_000, (1,)),
            "another process", cause="compute", ranks=2, steps=8),
    case_of("memory-bound kernels alone are slower", gpus.slow_memory, Fault("memory", 0, (2,), None, 1.8),
            "aten::gelu", cause="compute", how=Capture(offset_ns={2: 30 * MS})),
    case_of("other kernels for the same products", gpus.other_library, Fault("library", 0, (1,), None, 1.35),
            "aten::linear", cause="compute"),
    case_of("gathered ahead, products in 32 bits", sharded.prefetching, Fault("dtype", 0, (3,)), "mm",
            cause="compute", noise=unlike_hosts(114)),
    case_of("products in 32 bits on a rank of a pair", tensor_parallel.precise, Fault("wide", 0, (6,)), "mm",
            cause="compute", noise=unlike_hosts(215)),
    nobody("healthy, two kinds of GPUs, batches in proportion", "", gpus.two_kinds, noise=unlike_hosts(319)),
    case_of("two kinds of GPUs, batches alike", gpus.two_kinds, Fault("alike", 0, (4, 5, 6, 7)), "A100",
            cause="compute", noise=unlike_hosts(320)),
    case_of("decoding by stages, a hot GPU", serving.token_by_token, Fault("throttle", 0, (2,), None, 1.35), "",
            noise=like_hosts(337)),
    case_of("a stage that has the loss, a hot GPU", pipelines.with_loss, Fault("throttle", 0, (1,), None, 1.3),
            "same kernels take 1.3", stages=2, microbatches=4),
    case_of("a stage throttled in half of the steps", usual.pipelined, Fault("throttle", 0, (2,), (3, 4, 5), 1.4),
            "same kernels take 1.4", stages=4, microbatches=8, steps=8, how=Capture(has_stream_waits=True)),
    case_of("hosts stall at random, one GPU throttled", host_pauses.stalling_hosts,
            Fault("throttle", 0, (2,), None, 1.3), "same kernels take 1.3"),
    case_of("a GPU of another model", gpus.other_gpu, Fault("other", 0, (2,)), "A100", cause="compute"),
    case_of("limited prefetch, a GPU throttled", sharded.limited, Fault("throttle", 0, (6,), None, 1.25),
            "same kernels take 1.2"),
    case_of("replayed graphs, a GPU throttled", launches.replayed, Fault("throttle", 0, (2,), None, 1.3),
            "same kernels take 1.3"),
    case_of("a slice of a GPU, by its multiprocessors", usual.ddp, Fault("throttle", 0, (1,), None, 1.9),
            "smaller (60 multiprocessors", spoil=_slice, ranks=4, steps=3),
    nobody("two ranks on one GPU", "straggler uneven_work", usual.ddp, Fault("throttle", 0, (2, 3), None, 1.9),
            ranks=4, steps=3, others=(2, 3), spoil=_on_one),
    nobody("every rank's GPU is its number 0", "", usual.ddp, ranks=4, steps=3, spoil=_hidden_from_each_other),
)  # fmt: skip
