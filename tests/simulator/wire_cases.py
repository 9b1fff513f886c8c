"""Jobs with something about their communication, and captures whose files are wrong; the truth beside, written first."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.simulator import kineto, spoiled
from tests.simulator import more_jobs as more
from tests.simulator import rare_jobs as rare
from tests.simulator import wire_jobs as wire
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture, capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.engine import run
from tests.simulator.faults import Fault
from tests.simulator.program import Job

_HEALTHY = "A step takes|model FLOPs"
_EVERY = (0, 1, 2, 3)
_WORLD = tuple(range(8))


def _nobody(name: str, says: str, job: Callable[..., Job], *faults: Fault, how: Capture | None = None, first: int = 0,
            others: tuple[int, ...] = (), spoil: spoiled.Spoil | None = None, **options: object) -> Case:  # fmt: skip
    return Case(name, lambda own: job(faults=own, **options), faults, Truth(says=says, others=others), how or Capture(),
                first, spoil=spoil)  # fmt: skip


def _spoiled(
    name: str, spoil: spoiled.Spoil, job: Callable[..., Job], fault: Fault, what: str, **options: object
) -> Case:
    return replace(case_of(name, job, fault, what, **options), spoil=spoil)  # type: ignore[arg-type]  # options are the job's


def _of_six(folder: Path) -> None:
    kineto.write(capture(run(usual.ddp(6, 4, layers=12)), Capture()), folder)


def _hot(rank: int, *steps: int) -> Fault:
    return Fault("hot", 4 * MS, (rank,), steps or None)


_LINKS: tuple[Case, ...] = (
    case_of("one data group's cards at half rate", wire.mesh, Fault("link", 1_500_000, (1, 5, 9, 13)),
            "all-reduce among ranks 1, 5, 9 and 13"),
    case_of("one tensor group's links at half rate", wire.mesh, Fault("link", 800_000, (8, 9, 10, 11)),
            "all-reduce among ranks 8 to 11", of="tp", is_behind=True),
    case_of("one pipeline edge at half rate", wire.edged, Fault("link", 3_200_000, (1, 2)), "ranks 1 and 2", cause="transfer"),
    case_of("all tensor groups of a node at half rate", wire.mesh, Fault("link", 800_000, (4, 5, 6, 7)), "all-reduce among ranks",
            of="tp", tensor=2, data=4, is_behind=True),
    _nobody("an all-reduce is sent again once", "step 3", wire.retried, Fault("link", 25 * MS, _WORLD, (3,))),
    case_of("a tensor group's all-reduces stall once", wire.mesh, Fault("link", 9 * MS, (4, 5, 6, 7), (2,)), "all-reduce among ranks 4 to 7",
            of="tp"),
    case_of("a ring in data parallelism, one edge is slow", wire.rings, Fault("link", 4 * MS, (2,)), "ranks 2 and 3",
            says_ranks=(2, 3), cause="transfer"),
    case_of("a ring in data parallelism, a GPU is throttled", wire.rings, Fault("throttle", 0, (6,), None, 1.4),
            "the same kernels take 1.4"),
)  # fmt: skip

_SHAPES: tuple[Case, ...] = (
    case_of("a hot expert, uneven exchanges", wire.hot_experts, _hot(2), "_grouped_mm", cause="compute"),
    Case("a hot expert that moves", lambda faults: wire.hot_experts(faults=faults),
         (_hot(0, 0, 1), _hot(2, 2, 3), _hot(3, 4, 5)), Truth((0, 2, 3), "compute", "_grouped_mm")),
    _nobody("experts even, exchanges with splits", _HEALTHY + "|ll-to-all|communication", wire.hot_experts),
    _nobody("buffers are broadcast each step", _HEALTHY, wire.with_buffers),
    case_of("buffers are broadcast each step, a host", wire.with_buffers, Fault("host", 5 * MS, (3,)), "log_metrics"),
    _nobody("an all-reduce for each parameter", "bucket|all-reduce|ommunication", wire.unbucketed),
    _nobody("gradients scattered in one piece", "educe-scatter|ommunication", wire.scattered_last),
    _nobody("kernels beside all-reduces take 1.8 times as long", "beside|1.8", wire.contended),
    _nobody("a checkpoint is copied beside all-reduces", "step 3|" + _HEALTHY, wire.checkpointed,
            Fault("copy", 8 * MS, (0,), (3,)), Fault("link", 6 * MS, _EVERY, (3,))),
    _nobody("hosts wait for each collective", "cudaStreamSynchronize|hosts|ommunication", wire.blocking),
    case_of("hosts wait for each collective, one loader", wire.blocking, Fault("data", 5 * MS, (1,)), LOADER),
    case_of("hosts meet in an all-gather of the CPU, garbage of one", partial(rare.meeting_hosts, name="allgather"),
            Fault("gc", 8 * MS, (4,), (1, 3)), "gc.collect", ranks=6),
    case_of("groups that share ranks, on one stream", wire.chained, Fault("compute", 4 * MS, (0,)), "mm"),
    case_of("groups that share ranks, a host in the middle", wire.chained, Fault("host", 7 * MS, (3,)), "log_metrics"),
    case_of("gradients late by a hook", wire.hooked, Fault("hook", 12 * MS, (2,)), "compress_hook", cause="host"),
    _nobody("every host's hook is long", "host|compress_hook", wire.hooked, Fault("hook", 12 * MS, _EVERY)),
    case_of("a server of parameters", wire.served, Fault("adam", 4 * MS, (0,)), "adamw", cause="compute"),
    case_of("a server of parameters, a worker's GPU", wire.served, Fault("compute", 4 * MS, (3,)), "mm", others=(0,)),
)  # fmt: skip

_FILES: tuple[Case, ...] = (
    _nobody("two neighbours' files are missing, one of them late", "not here|missing", usual.ddp,
            Fault("compute", 3 * MS, (5,)), how=Capture(missing=(5, 6))),
    case_of("two neighbours' files are missing, another late", usual.ddp, Fault("host", 5 * MS, (2,)), "log_metrics",
            how=Capture(missing=(5, 6)), has_gain=False),
    case_of("half of the files are missing", usual.ddp, Fault("compute", 3 * MS, (2,)), "mm",
            how=Capture(missing=(4, 5, 6, 7)), has_gain=False),
    _nobody("half of the files are missing, even", _HEALTHY + "|4 of 8", usual.hsdp, how=Capture(missing=(1, 3, 5, 7)),
            shard=4, replicate=2),
    case_of("one rank records from its third step on", usual.fsdp, Fault("data", 6 * MS, (1,)), LOADER, ranks=4, steps=7,
            how=Capture(start_ns={2: 24 * MS}), has_gain=False),
    _spoiled("a rank counts its steps otherwise", spoiled.numbered_otherwise(3, 1), usual.ddp, Fault("compute", 3 * MS, (5,)), "mm",
             steps=6),
    _spoiled("no step is shared", spoiled.numbered_otherwise(9, 1), usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=2,
             has_gain=False),
    _spoiled("the late rank marks no steps", spoiled.without_steps(5), usual.ddp, Fault("compute", 3 * MS, (5,)), "mm",
             has_gain=False),
    _spoiled("another rank marks no steps", spoiled.without_steps(2), usual.fsdp, Fault("host", 6 * MS, (3,)), "log_metrics",
             has_gain=False),
    _nobody("healthy, a rank marks no steps", "", usual.ddp, spoil=spoiled.without_steps(2)),
    case_of("a file cut at 60 %", usual.hsdp, Fault("host", 5 * MS, (5,)), "log_metrics", how=Capture(cut={2: 0.6}),
            has_gain=False),
    case_of("the profiler starts within a step", usual.tp_dp, Fault("compute", 3 * MS, (6,)), "mm", steps=6,
            how=Capture(start_ns=dict.fromkeys(range(16), 9 * MS)), has_gain=False),
    _spoiled("tensor x data without marks of steps", spoiled.edited(range(8), lambda document: document.update(
        traceEvents=[each for each in document["traceEvents"] if not each["name"].startswith("ProfilerStep#")])),
        usual.tp_dp, Fault("data", 5 * MS, (2,)), LOADER, tensor=2, data=4, has_gain=False),
    _nobody("clocks drift, even", _HEALTHY, usual.fsdp, how=Capture(drift={1: 0.002, 3: -0.001}), ranks=4, steps=10),
    _nobody("a clock set anew, and a late host", "clock", usual.ddp, Fault("host", 5 * MS, (2,)), others=(2,), steps=6,
            how=Capture(clock_step={6: (24 * MS, 30 * MS)})),
    _spoiled("one rank without its host's side", spoiled.without_host(3), usual.ddp, Fault("compute", 3 * MS, (1,)), "mm",
             ranks=4, has_gain=False),
    _spoiled("one rank without its GPU's side", spoiled.without_gpu(3), usual.ddp, Fault("compute", 3 * MS, (1,)), "mm",
             ranks=4, has_gain=False),
    _spoiled("collectives without arguments, one group", spoiled.old_version(6), usual.ddp, Fault("host", 6 * MS, (4,)),
             "log_metrics", ranks=6),
    _spoiled("a rank's file twice", spoiled.copied(2, "rank2 (1).json.gz"), usual.fsdp, Fault("data", 6 * MS, (1,)), LOADER, ranks=4),
    _spoiled("two files with each other's name", spoiled.swapped(1, 2), usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4),
    _nobody("a search for kernels in the first step", "arm|step 0|first step", wire.warming),
    _spoiled("shapes on some ranks only", spoiled.without_shapes(2, 3), usual.ddp, Fault("throttle", 0, (1,), None, 1.4),
             "the same kernels take 1.4", ranks=4),
    _spoiled("packed beside plain files", spoiled.unpacked(0, 2), more.uneven_prefetch, Fault("compute", 3 * MS, (2,)), "mm"),
    _spoiled("two windows of each rank", spoiled.in_windows(4, (5,)), usual.ddp, Fault("host", 5 * MS, (2,)), "log_metrics",
             ranks=4, steps=9, has_gain=False),
    _nobody("two windows of each rank, even", _HEALTHY, usual.ddp, ranks=4, steps=9, spoil=spoiled.in_windows(4, (5,))),
    _spoiled("a job that was restarted", spoiled.restarted(_of_six, 300e6), usual.ddp, Fault("compute", 3 * MS, (5,)), "mm"),
    _spoiled("another job's files beside", spoiled.restarted(_of_six, 1_000), usual.ddp, Fault("compute", 3 * MS, (5,)), "mm"),
)  # fmt: skip

WIRE_CASES: tuple[Case, ...] = (*_LINKS, *_SHAPES, *_FILES)
