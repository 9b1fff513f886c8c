"""Kinds of jobs that are met rarely, with the truth beside them; captures of one step and of two."""

from collections.abc import Callable

from tests.simulator import more_jobs as more
from tests.simulator import odd_jobs as odd
from tests.simulator import rare_jobs as rare
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.cube_jobs import cube
from tests.simulator.faults import Fault, Faults
from tests.simulator.meshes import neighbours
from tests.simulator.program import Job

_HEALTHY = "A step takes|model FLOPs"


def _nobody(name: str, says: str, job: Callable[[Faults], Job], *faults: Fault, how: Capture | None = None) -> Case:
    return Case(name, job, faults, Truth(says=says), how or Capture())


def _short(name: str, job: Callable[..., Job], fault: Fault, what: str, **options: object) -> tuple[Case, ...]:
    """The same job with one step recorded, and with two."""
    return tuple(
        case_of(f"{name}, {'one step' if first == 3 else 'two steps'} recorded", job, fault, what, first=first, steps=4,
                has_gain=first == 2, **options)  # type: ignore[arg-type]  # options are the job's
        for first in (3, 2)
    )  # fmt: skip


RARE_CASES: tuple[Case, ...] = (
    case_of("three ranks in turn, each by another cause", usual.ddp, Fault("data", 7 * MS, (1,), (1, 4, 7)), LOADER,
            ranks=4, steps=10, left=(Fault("compute", 4 * MS, (0,), (0, 3, 6)), Fault("gc", 5 * MS, (2,), (2, 5, 8))),
            others=(0, 2)),
    case_of("last step only, two steps recorded", usual.fsdp, Fault("data", 6 * MS, (3,), (3,)), LOADER, ranks=4,
            steps=4, first=2, has_gain=False),
    case_of("slower in backward alone", rare.slow_backward, Fault("backward", 2 * MS, (1,)), "the same kernels take",
            cause="compute"),
    *_short("slower in backward alone", rare.slow_backward, Fault("backward", 2 * MS, (1,)), "the same kernels take",
            cause="compute"),
    Case("loaders stall every fourth step, another rank's each time", lambda faults: usual.ddp(4, 13, faults, layers=6),
         tuple(Fault("data", 20 * MS, (rank,), (step,)) for rank, step in ((2, 1), (0, 5), (3, 9))),
         Truth((0, 2, 3), "data", LOADER, (1, 5, 9))),
    case_of("a network card slow for two groups", rare.network_cards, Fault("link", 3 * MS, (4, 5, 6, 7)),
            "all-gather among ranks"),
    case_of("a slower clock and a late host of one rank", usual.ddp, Fault("host", 6 * MS, (2,)), "log_metrics", ranks=4,
            left=(Fault("throttle", 0, (2,), None, 1.2),)),
    _nobody("microbatches of random lengths", "compute unevenly", lambda faults: rare.uneven_microbatches(faults=faults)),
    case_of("gc in one tensor group, a slow GPU in another", usual.tp_dp, Fault("gc", 9 * MS, (1,), (1, 3)), "gc.collect",
            tensor=2, data=4, steps=6, left=(Fault("throttle", 0, (6,), None, 1.6),), others=(6,)),
    case_of("rank 0 evaluates before a barrier", more.saves_with_barrier, Fault("eval", 12 * MS, (0,), (1, 3)), "conv"),
    case_of("a stage throttled in half of the steps", usual.pipelined, Fault("throttle", 0, (2,), (3, 4, 5), 1.4),
            "the same kernels take 1.4", stages=4, microbatches=8, steps=8, how=Capture(has_stream_waits=True)),
    case_of("half by their loaders, half throttled", usual.ddp, Fault("data", 8 * MS, (0, 1, 2, 3)), LOADER,
            left=(Fault("throttle", 0, (4, 5, 6, 7), None, 1.3),), others=(4, 5, 6, 7)),
    _nobody("one rank's batches are short", _HEALTHY + "|unevenly", lambda faults: rare.short_batches(faults=faults)),
    _nobody("rank 0 copies beside its compute", _HEALTHY, lambda faults: rare.saving_beside(faults=faults)),
    Case("a late host that nobody waits for", lambda faults: usual.ddp(4, 8, faults, is_synced=False),
         (Fault("host", 2 * MS, (1,)),), Truth(says=_HEALTHY), first=3),
    Case("hosts stall at random", lambda faults: rare.stalling_hosts(faults=faults), (),
         Truth(says="in turn, each in other steps, stay on their hosts", others=(0, 1, 2, 3))),
    case_of("hosts stall at random, one GPU throttled", rare.stalling_hosts, Fault("throttle", 0, (2,), None, 1.3),
            "the same kernels take 1.3"),
    case_of("the hosts of one tensor group", usual.tp_dp, Fault("host", 5 * MS, (4, 5, 6, 7)), "log_metrics"),
    case_of("a slow GPU in each of two tensor groups", usual.tp_dp, Fault("throttle", 0, (1, 6), None, 1.4),
            "the same kernels take 1.4", tensor=2, data=4),
    case_of("throttled at first, then not", usual.ddp, Fault("throttle", 0, (3,), (0, 1, 2), 1.4),
            "the same kernels take 1.4", ranks=4, steps=8),
    case_of("tensor x pipeline x data, loader", cube, Fault("data", 9 * MS, (6,)), LOADER),
    case_of("accumulating, free now and then", odd.accumulating, Fault("free", 7 * MS, (3,), (1, 2)), "cudaFree", steps=6),
    case_of("two files missing, a host", usual.ddp, Fault("host", 5 * MS, (1,)), "log_metrics", ranks=8,
            how=Capture(missing=(3, 6)), has_gain=False),
    case_of("a file of the other shard group is missing", usual.hsdp, Fault("compute", 3 * MS, (6,)), "mm", shard=4,
            replicate=2, how=Capture(missing=(1,)), has_gain=False),
    *_short("tensor x data, loader", usual.tp_dp, Fault("data", 6 * MS, (5,)), LOADER, tensor=2, data=4),
    *_short("experts, host", usual.ep_dp, Fault("host", 5 * MS, (6,)), "log_metrics"),
    *_short("pipeline, gc", usual.pipelined, Fault("gc", 15 * MS, (1,)), "gc.collect"),
    case_of("hosts meet in a barrier of the CPU, one late", rare.meeting_hosts, Fault("host", 6 * MS, (1,)), "log_metrics"),
    case_of("hosts meet in a barrier of the CPU, one loader", rare.meeting_hosts, Fault("data", 5 * MS, (2,), (2, 4)),
            LOADER),
    case_of("hosts meet in twos, one late", rare.meeting_hosts, Fault("host", 6 * MS, (3,)), "log_metrics", groups=2),
    _nobody("hosts meet in a barrier of the CPU, none late", _HEALTHY + "|hosts|CPU is in gloo:barrier",
            lambda faults: rare.meeting_hosts(faults=faults)),
    case_of("edges exchanged with neighbours, a GPU", neighbours, Fault("compute", 3 * MS, (2,)), "mm"),
    case_of("edges exchanged with neighbours, a host", neighbours, Fault("host", 5 * MS, (1,)), "log_metrics"),
    *_short("hsdp, half throttled", usual.hsdp, Fault("throttle", 0, (4, 5, 6, 7), None, 1.5), "the same kernels take 1.5",
            shard=4, replicate=2),
)  # fmt: skip
"""The throttled stage's streams have their waits recorded: those that a slow GPU hides cannot be told from times, and
the gain is 6 % too large without. What has no gain in its truth is not held by complete steps, or not all ranks of it are here."""
