"""Kinds of jobs of which a report was never made while it was written, with the truth beside them."""

from collections.abc import Callable

from tests.simulator import more_jobs as more
from tests.simulator import odd_jobs as odd
from tests.simulator import parted_jobs as parted
from tests.simulator import serving_jobs as serving
from tests.simulator import single_jobs as single
from tests.simulator import unlike_jobs as unlike
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.faults import Fault
from tests.simulator.program import Job

_HEALTHY = "A step takes|model FLOPs"


def _nobody(name: str, says: str, job: Callable[..., Job], *faults: Fault, how: Capture | None = None, first: int = 0,
            **options: object) -> Case:  # fmt: skip
    return Case(name, lambda own: job(faults=own, **options), faults, Truth(says=says), how or Capture(), first)


_EVERY = (0, 1, 2, 3)
_HALF = (0, 1, 2, 3)

STRANGE_CASES: tuple[Case, ...] = (
    # Serving and generation.
    _nobody("continuous batching, hosts schedule", "hosts|cudaStreamSynchronize|schedule", serving.continuous_batching),
    case_of("continuous batching, one scheduler is slow", serving.continuous_batching, Fault("host", 1 * MS, (2,)), "schedule",
            has_gain=False),
    case_of("continuous batching, a slow GPU", serving.continuous_batching, Fault("throttle", 0, (1,), None, 1.5),
            "the same kernels take 1.5", has_gain=False),
    _nobody("speculative decoding", "hosts|cudaStreamSynchronize", serving.speculative),
    case_of("speculative decoding, one host", serving.speculative, Fault("host", 2 * MS, (1,)), "log_metrics"),
    _nobody("prefill and decode on other ranks", "prefill|Stage 0|anks 0 and 1|A step takes|pipeline", serving.prefill_apart),
    case_of("prefill and decode on other ranks, a slow prefiller", serving.prefill_apart, Fault("compute", 5 * MS, (1,)), "mm",
            others=(0,)),
    case_of("rollouts, one rank's answers are longer", serving.rollouts, Fault("answers", 4 * MS, (3,)), "generate",
            cause="host and compute"),
    _nobody("rollouts, answers of random lengths", "hosts|generate|in turn|uneven", serving.rollouts, spread=30),
    case_of("actors and learners", serving.actors_and_learners, Fault("act", 5 * MS, (2, 3)), "mm", cause="compute"),
    # One GPU.
    _nobody("one GPU, kernels", _HEALTHY, single.trained),
    _nobody("one GPU, small kernels", "host", single.trained, kernel_ns=6_000, layers=60),
    _nobody("one GPU, loader", "data", single.trained, Fault("data", 8 * MS, (0,))),
    _nobody("one GPU, reads each layer", "cudaStreamSynchronize|item|print_stats", single.trained, read_each_layer=True),
    _nobody("one GPU, clips by a number", _HEALTHY + "|item|cudaStreamSynchronize", single.trained, clips=True),
    _nobody("one GPU, copies bind", "cop", single.trained, copies_ns=12 * MS),
    _nobody("one GPU, pageable copies bind", "pageable", single.trained, copies_ns=12 * MS, is_pageable=True),
    _nobody("one GPU, recorded with stacks", "host|profiler", single.trained, frames=60, kernel_ns=30_000),
    _nobody("one GPU, kernels of few blocks", _HEALTHY + "|SM|block", single.trained, blocks=8),
    _nobody("one GPU, collects garbage once", "In step 3.*gc.collect", single.trained, Fault("gc", 60 * MS, (0,), (3,))),
    _nobody("one GPU, Python of its own", "Nothing is recorded of what rank 0's host does for [23].* ms a step, in one stretch",
            single.trained, Fault("silent", 30 * MS, (0,))),
    _nobody("one GPU, Python of its own once", "Nothing is recorded|In step 3", single.trained, Fault("silent", 90 * MS, (0,), (3,))),
    _nobody("all hosts do the same in Python", "Nothing is recorded.*the same on all 4 ranks", usual.ddp,
            Fault("silent", 30 * MS, _EVERY), ranks=4),
    case_of("ddp, one host in Python of its own", usual.ddp, Fault("silent", 20 * MS, (2,)), "host is late"),
    _nobody("one GPU, throttled more and more", _HEALTHY + "|slower", single.trained, Fault("throttle", 0, (0,), (3, 4, 5), 1.5)),
    _nobody("graph neighbours sampled on the host", "sample", single.trained, sampled_ns=20 * MS),
    _nobody("four GPUs, nothing exchanged", _HEALTHY, single.trained, ranks=4),
    _nobody("four GPUs, nothing exchanged, one slow", _HEALTHY + "|wait", single.trained, Fault("compute", 3 * MS, (2,)), ranks=4),
    # Ranks that do unlike things.
    case_of("embeddings, one rank's tables", unlike.recommending, Fault("tables", 3 * MS, (1,)), "_embedding_bag", cause="compute"),
    _nobody("embeddings, even", _HEALTHY + "|ll-to-all|communication", unlike.recommending),
    case_of("embeddings, a loader", unlike.recommending, Fault("data", 5 * MS, (2,)), LOADER),
    case_of("one optimizer for all", unlike.one_optimizer, Fault("adam", 3 * MS, (0,)), "adamw", cause="compute"),
    case_of("uneven shards of the optimizer", unlike.sharded_optimizer, Fault("shard", 3 * MS, (3,)), "adamw", cause="compute"),
    _nobody("sharded, no prefetch", "nothing overlaps", parted.gathered_late),
    case_of("sharded, no prefetch, a slow rank", parted.gathered_late, Fault("compute", 4 * MS, (1,)), "mm"),
    _nobody("adapters", _HEALTHY, unlike.frozen),
    case_of("adapters, compute", unlike.frozen, Fault("compute", 3 * MS, (2,)), "mm"),
    case_of("adapters, copies", unlike.frozen, Fault("copy", 3 * MS, (0,)), "HtoD"),
    case_of("a barrier before each step, a loader", unlike.with_barrier, Fault("data", 5 * MS, (2,)), LOADER),
    case_of("a barrier before each step, one rank prints", unlike.with_barrier, Fault("item", 4 * MS, (0,), (1, 4)), "print_loss"),
    _nobody("late in turn within a step", "Ranks wait for each other 5.99 ms of a 15.4 ms step.*would be 5.99 ms shorter",
            unlike.accumulated_in_turn),
    _nobody("late in turn within a step, nobody waits", _HEALTHY, unlike.accumulated_in_turn, is_synced=False),
    _nobody("experts' loads shift", "uneven|Evened|tokens", unlike.shifting_experts),
    case_of("experts' loads shift, a loader", unlike.shifting_experts, Fault("data", 8 * MS, (1,)), LOADER),
    _nobody("the last stage has the vocabulary", "tage 3", parted.with_loss),
    _nobody("the last stage has the vocabulary, interleaved", "tage 3|ank 3", parted.with_loss, chunks=2),
    case_of("the last stage has the vocabulary, another collects garbage", parted.with_loss, Fault("gc", 20 * MS, (1,)),
            "gc.collect", others=(3,)),
    case_of("a GPU of another model", unlike.other_gpu, Fault("other", 0, (2,)), "A100", cause="compute"),
    _nobody("sequence parallel", "communication|ll-gather|educe-scatter", parted.sequence_parallel),
    case_of("sequence parallel, host", parted.sequence_parallel, Fault("host", 4 * MS, (2,)), "log_metrics"),
    case_of("rank 0 saves in a thread", unlike.saves_in_thread, Fault("host", 9 * MS, (0,)), "host"),
    case_of("one rank compiles again", unlike.compiling, Fault("compile", 90 * MS, (2,), (3,)), "compile", cause="host"),
    _nobody("all compile again in a step", "In step 3.*compile", unlike.compiling, Fault("compile", 90 * MS, _EVERY, (3,))),
    _nobody("tensor in pipeline, a heavy stage", "tage 1", parted.tensor_in_pipeline, stage_ns=(300_000, 500_000, 300_000)),
    case_of("tensor in pipeline, a heavy stage and a host", parted.tensor_in_pipeline, Fault("gc", 15 * MS, (4,)), "gc.collect",
            stage_ns=(300_000, 400_000, 300_000), others=(2, 3)),
    case_of("a ring, one host", more.ring, Fault("gc", 6 * MS, (2,)), "gc.collect"),
    # Faults together.
    case_of("a node's loaders, another's GPU once", usual.hsdp, Fault("data", 9 * MS, (4, 5, 6, 7)), LOADER, shard=4, replicate=4,
            steps=6, left=(Fault("compute", 5 * MS, (13,), (2,)),), others=(13,)),
    case_of("a host always, a copy once, a GPU twice", usual.ddp, Fault("host", 9 * MS, (1,)), "log_metrics", ranks=6, steps=8,
            left=(Fault("copy", 5 * MS, (4,), (2,)), Fault("compute", 4 * MS, (3,), (4, 6))), others=(3, 4)),
    case_of("loaders of half now and then", usual.ddp, Fault("data", 9 * MS, _HALF, (1, 3, 5)), LOADER, steps=7),
    case_of("offload, one rank's bus is slow", usual.offload, Fault("copy", 6 * MS, (1,)), "HtoD", ranks=4, optimizer_ns=2 * MS),
    case_of("accumulating, a GPU slower in two steps", odd.accumulating, Fault("throttle", 0, (2,), (2, 3), 1.4),
            "the same kernels take 1.4", steps=6),
    # Captures.
    _nobody("the links stall once", "All-gathers .* of step 2", odd.links, Fault("link", 30 * MS, tuple(range(12)), (2,))),
    case_of("one rank stops recording halfway", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4, steps=8,
            how=Capture(end_ns={3: 35 * MS}), has_gain=False),
    _nobody("ranks recorded one after the other", "no time|not at the same time|in common|overlap|apart", usual.ddp,
            Fault("compute", 3 * MS, (1,)), ranks=2, steps=10,
            how=Capture(end_ns={0: 35 * MS}, start_ns={1: 45 * MS})),
    case_of("a clock that drifts", usual.ddp, Fault("host", 4 * MS, (3,)), "log_metrics", ranks=4, steps=10,
            how=Capture(drift={1: 0.001, 2: -0.0005})),
    _nobody("a smaller last batch", _HEALTHY, unlike.frozen, Fault("compute", 3 * MS, _EVERY, (0, 1, 2, 3, 4))),
    case_of("a warm-up of two steps is left, then a loader", usual.fsdp, Fault("data", 8 * MS, (3,)), LOADER, ranks=4, steps=5, first=3),
)  # fmt: skip
