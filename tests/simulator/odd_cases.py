"""Jobs that a report is easily wrong about: two faults, small ones, none at all; slow links, throttled GPUs, stalls."""

from collections.abc import Callable

from tests.simulator import odd_jobs as odd
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.faults import Fault, Faults
from tests.simulator.program import Job

_EVERY = tuple(range(4))
_GC_IN_TURN = tuple(Fault("gc", 6 * MS, (step % 4,), (step,)) for step in range(1, 8))


def _ddp(faults: Faults) -> Job:
    return usual.ddp(4, 6, faults, layers=6)


def _ddp_of_8(faults: Faults) -> Job:
    return usual.ddp(4, 8, faults, layers=6)


def _nobody(name: str, says: str, job: Callable[[Faults], Job], *faults: Fault, how: Capture | None = None) -> Case:
    return Case(name, job, faults, Truth(says=says), how or Capture())


_HEALTHY = "A step takes|model FLOPs"

ODD_CASES: tuple[Case, ...] = (
    case_of("throttled in the second half", usual.ddp, Fault("throttle", 0, (3,), (4, 5, 6, 7), 1.3), "the same kernels take 1.3",
            ranks=4, steps=8),
    case_of("throttled throughout", usual.ddp, Fault("throttle", 0, (3,), None, 1.3), "the same kernels take 1.3", ranks=4),
    case_of("throttled, a sharded job", usual.fsdp, Fault("throttle", 0, (1,), None, 1.25), "the same kernels take 1.25", ranks=4),
    case_of("allocation stalls one rank", usual.ddp, Fault("malloc", 12 * MS, (2,)), "cudaMalloc", ranks=4),
    case_of("one rank saves once", usual.ddp, Fault("save", 20 * MS, (0,), (2,)), "save", ranks=4),
    case_of("one rank prints its loss", usual.ddp, Fault("item", 3 * MS, (0,)), "print_loss", ranks=4),
    case_of("one rank prints now and then", usual.ddp, Fault("item", 4 * MS, (0,), (1, 3, 5)), "print_loss", ranks=4,
            steps=7),
    case_of("small, compute", usual.ddp, Fault("compute", 250_000, (2,)), "mm", ranks=4, is_small=True),
    case_of("small, host", usual.fsdp, Fault("host", 350_000, (2,)), "log_metrics", ranks=4, is_small=True),
    case_of("noisy, compute", usual.ddp, Fault("compute", 2 * MS, (2,)), "mm", ranks=6, jitter=0.08),
    case_of("unsynced, compute", usual.ddp, Fault("compute", 2 * MS, (2,)), "mm", ranks=4, steps=6, is_synced=False),
    case_of("unsynced, host", usual.ddp, Fault("host", 14 * MS, (2,)), "log_metrics", ranks=4, steps=6,
            is_synced=False),
    case_of("unsynced, loader", usual.fsdp, Fault("data", 12 * MS, (1,)), LOADER, ranks=4, steps=6, is_synced=False),
    case_of("unsynced, gc once", usual.ddp, Fault("gc", 14 * MS, (1,), (3,)), "gc.collect", ranks=4, steps=6,
            is_synced=False),
    case_of("one step recorded, compute", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4, steps=2, first=1,
            has_gain=False),
    case_of("one step recorded, loader", usual.fsdp, Fault("data", 6 * MS, (1,)), LOADER, ranks=4, steps=2, first=1,
            has_gain=False),
    case_of("one step recorded, half late", usual.ddp, Fault("host", 4 * MS, (0, 1)), "log_metrics", ranks=4, steps=2,
            first=1, has_gain=False),
    case_of("two steps recorded, half late", usual.ddp, Fault("compute", 4 * MS, (0, 1)), "mm", ranks=4, steps=3,
            first=1),
    case_of("two faults, each in its place", usual.tp_dp, Fault("compute", 3 * MS, (5,)), "mm", tensor=2, data=4,
            left=(Fault("host", 1 * MS, (2,)),), others=(2,)),
    case_of("two faults, in other steps", usual.ddp, Fault("data", 8 * MS, (1,), (1, 2)), LOADER, ranks=4, steps=6,
            left=(Fault("compute", 3 * MS, (2,), (4,)),), others=(2,)),
    case_of("pipelines side by side, a stage", odd.pp_dp, Fault("compute", 4 * MS, (4,)), "mm"),
    case_of("pipelines side by side, a host", odd.pp_dp, Fault("gc", 12 * MS, (1,)), "gc.collect"),
    _nobody("pipelines side by side, a heavy stage", r"Stage 2 \(ranks 2 and 5\) computes up to",
            lambda faults: odd.pp_dp(faults=faults, heavy=(2, 1.6))),
    case_of("evaluation by one rank in some steps", odd.evaluating, Fault("eval", 60 * MS, (0,), (1, 3)), "evaluate"),
    Case("garbage of one rank in every second step, now more, now less", lambda faults: odd.around(faults=faults),
         tuple(Fault("gc", ms * MS, (1,), (step,)) for step, ms in ((0, 14), (2, 9), (4, 12))),
         Truth((1,), "host", "gc.collect", (0, 2, 4))),
    case_of("one rank augments before the step, the other logs less after it", odd.around, Fault("host", 12 * MS, (1,)), "augment",
            left=(Fault("gc", 7 * MS, (0,)),), has_gain=False),
    case_of("accumulating, compute", odd.accumulating, Fault("compute", 3 * MS, (1,)), "mm"),
    case_of("accumulating, loader", odd.accumulating, Fault("data", 6 * MS, (2,)), LOADER),
    case_of("exchanges in a row, host", odd.serial, Fault("host", 6 * MS, (1,)), "log_metrics"),
    case_of("broadcasts, the root's host", odd.broadcasts, Fault("host", 6 * MS, (0,)), "log_metrics"),
    case_of("two jobs, one with a fault", odd.two_jobs, Fault("compute", 3 * MS, (6,)), "mm"),
    case_of("another rank's file is missing", usual.ddp, Fault("compute", 3 * MS, (5,)), "mm", ranks=6,
            how=Capture(missing=(2,)), has_gain=False),
    case_of("a call is lost", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4,
            how=Capture(dropped={2: (3, -1)}), has_gain=False),
    _nobody("operations are lost", "The profiler lost .*% of ranks 0 to 3.s GPU",
            lambda faults: usual.ddp(4, 4, faults, layers=30), Fault("host", 3 * MS, (1,)),
            how=Capture(lost=dict.fromkeys(range(4), 0.15))),
    case_of("starts apart", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4, steps=6,
            how=Capture(start_ns={2: 12 * MS}), has_gain=False),
    case_of("ends apart", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4, steps=6,
            how=Capture(end_ns={3: 30 * MS}), has_gain=False),
    Case("gc in turn", lambda faults: usual.ddp(4, 8, faults, layers=6), _GC_IN_TURN,
         Truth((0, 1, 2, 3), "host", "gc.collect", (1, 2, 3, 4, 5, 6, 7), has_gain=True)),
    case_of("an exchange of two ranks", odd.beside, Fault("link", 3 * MS, (1, 2)), "all-gather among ranks 1 and 2"),
    case_of("slow links of a row", odd.links, Fault("link", 2 * MS, (4, 5, 6, 7)), "all-gather among ranks 4 to 7"),
    _nobody("one rank of eight is here", "Rank 0 of 8 is here alone", lambda faults: usual.ddp(8, 5, faults),
            Fault("compute", 3 * MS, (5,)), how=Capture(missing=tuple(range(1, 8)))),
    _nobody("two ranks of eight are here", "2 of 8 ranks are here", lambda faults: usual.tp_dp(4, 2, 5, faults),
            Fault("compute", 3 * MS, (5,)), how=Capture(missing=(1, 2, 3, 5, 6, 7))),
    Case("groups without names", lambda faults: usual.tp_dp(2, 4, 5, faults), (Fault("compute", 3 * MS, (5,)),),
         Truth(says="cannot be told whether it moves data or waits", others=(5,)), Capture(arguments="none")),
    Case("a fault that moves", lambda faults: usual.ddp(4, 8, faults),
         (Fault("compute", 4 * MS, (3,), (3, 4, 5, 6, 7)), Fault("compute", 4 * MS, (0,), (0, 1, 2))),
         Truth((3,), "compute", "mm", (3, 4, 5, 6, 7), others=(0,)), left=(Fault("compute", 4 * MS, (0,), (0, 1, 2)),)),
    case_of("a loader beside a slow node", usual.ddp, Fault("data", 6 * MS, (3,)), LOADER, ranks=16, steps=5, layers=4,
            left=(Fault("throttle", 0, tuple(range(8, 16)), None, 1.3),), others=tuple(range(8, 16))),
    case_of("data and compute of one rank", usual.ddp, Fault("data", 5 * MS, (2,)), LOADER, ranks=4, steps=6,
            left=(Fault("compute", 4 * MS, (2,)),)),
    _nobody("all collect garbage at once", "In step 2 .*gc.collect", _ddp, Fault("gc", 10 * MS, _EVERY, (2,))),
    _nobody("all collect garbage always", "gc.collect", _ddp, Fault("gc", 10 * MS, _EVERY)),
    _nobody("all wait for data", "data", _ddp, Fault("data", 6 * MS, _EVERY)),
    _nobody("all wait for data now and then", "In steps 1 and 4: .*data", _ddp_of_8, Fault("data", 6 * MS, _EVERY, (1, 4))),
    _nobody("all read their loss", "print_loss|cudaStreamSynchronize|.item", _ddp, Fault("item", 5 * MS, _EVERY)),
    _nobody("allocation stalls all", "calls for GPU memory", _ddp, Fault("malloc", 15 * MS, _EVERY)),
    _nobody("all save once", "In step 3 .*save", _ddp, Fault("save", 20 * MS, _EVERY, (3,))),
    _nobody("random lengths", "compute unevenly", lambda faults: odd.lengths(faults=faults)),
    _nobody("random lengths, few steps", "compute unevenly|Rank 1 computes", lambda faults: odd.lengths(4, 3, faults, seed=8)),
    _nobody("noisy", _HEALTHY, lambda faults: usual.ddp(8, 6, faults, jitter=0.08)),
    _nobody("very noisy", _HEALTHY + "|compute unevenly", lambda faults: usual.ddp(4, 5, faults, jitter=0.2)),
    _nobody("unsynced, even", _HEALTHY, lambda faults: usual.ddp(4, 6, faults, is_synced=False)),
    _nobody("two jobs, even", _HEALTHY, lambda faults: odd.two_jobs(faults=faults)),
    _nobody("exchanges in a row, even", "all-reduce|communication", lambda faults: odd.serial(faults=faults)),
    _nobody("small kernels", "hosts", lambda faults: odd.small_kernels(faults=faults)),
    _nobody("accumulating, even", _HEALTHY, lambda faults: odd.accumulating(faults=faults)),
    _nobody("logging, even", _HEALTHY, lambda faults: odd.logging(faults=faults)),
    _nobody("broadcasts, even", _HEALTHY, lambda faults: odd.broadcasts(faults=faults)),
    _nobody("pipelines side by side, even", "ipeline", lambda faults: odd.pp_dp(faults=faults)),
    _nobody("one step recorded, even", "No step is complete", lambda faults: usual.ddp(4, 1, faults)),
    _nobody("one rank alone", _HEALTHY, lambda faults: usual.ddp(1, 4, faults)),
)  # fmt: skip
"""What has no gain in its truth cannot be mended by taking a fault away, or is not held by complete steps.

Where the only peer has a fault of its own, to be as quick as it is less than to be mended.
"""
