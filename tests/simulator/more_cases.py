"""Further kinds of jobs with the truth beside them: microbatches, heat, links, saving, offloading, experts, hosts."""

from collections.abc import Callable
from functools import partial

from tests.simulator import more_jobs as more
from tests.simulator import odd_jobs as odd
from tests.simulator import workloads as usual
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.cube_jobs import cube
from tests.simulator.faults import Fault, Faults
from tests.simulator.program import Job

_EVERY = tuple(range(4))
_HEALTHY = "A step takes|model FLOPs"


def _nobody(name: str, says: str, job: Callable[[Faults], Job], *faults: Fault) -> Case:
    return Case(name, job, faults, Truth(says=says))


def _two_hosts(faults: Faults, *, times: float) -> Job:
    return more.slow_at_all(2, faults=faults, times=times)


MORE_CASES: tuple[Case, ...] = (
    case_of("late last microbatch, compute", more.late_last_microbatch, Fault("compute", 3 * MS, (1,)), "mm"),
    case_of("late last microbatch, host", more.late_last_microbatch, Fault("gc", 9 * MS, (2,)), "gc.collect"),
    case_of("one rank validates every second step", usual.ddp, Fault("eval", 5 * MS, (1,), (1, 3, 5)), "conv", ranks=4,
            steps=7),
    case_of("one of two ranks validates in one step of three", usual.ddp, Fault("eval", 9 * MS, (0,), (1,)), "conv",
            ranks=2, steps=3),
    case_of("one of two ranks saves in one step of three", usual.ddp, Fault("save", 40 * MS, (1,), (1,)), "save",
            ranks=2, steps=3),
    case_of("one of two ranks validates in one step of two", usual.ddp, Fault("eval", 9 * MS, (1,), (0,)), "conv",
            ranks=2, steps=2),
    case_of("one of two ranks copies in the last step of four", usual.ddp, Fault("copy", 9 * MS, (1,), (3,)), "HtoD",
            ranks=2, steps=4, has_gain=False),
    Case("two ranks, three steps, calls for memory of unequal length", lambda faults: usual.ddp(2, 3, faults),
         tuple(Fault("malloc", ms * MS, (1,), (step,)) for step, ms in enumerate((4, 3, 2))),
         Truth((1,), "host", "calls for GPU memory")),
    case_of("a slow epoch boundary, one rank", usual.ddp, Fault("data", 40 * MS, (3,), (3,)), LOADER, ranks=4, steps=7),
    _nobody("a slow epoch boundary, all", "In step 3: .*data", lambda faults: usual.ddp(4, 7, faults),
            Fault("data", 40 * MS, _EVERY, (3,))),
    case_of("heat grows", more.heating, Fault("throttle", 0, (2,), (1, 2, 3, 4, 5, 6, 7)), "the same kernels take",
            has_gain=True),
    case_of("ring, one rank's compute", more.ring, Fault("compute", 3 * MS, (1,)), "mm"),
    Case("ring, one rank's blocks are longer", lambda faults: more.ring(faults=faults, in_lockstep=True),
         (Fault("block", MS, (1,)),), Truth((1,), "compute", "scaled_dot_product_attention")),
    _nobody("ring, even", _HEALTHY, lambda faults: more.ring(faults=faults)),
    case_of("tensor pair with a slow GPU", usual.tp_dp, Fault("throttle", 0, (5,), None, 1.3), "the same kernels take 1.3",
            tensor=2, data=4),
    case_of("checkpoint on rank 0 with a barrier", more.saves_with_barrier, Fault("save", 30 * MS, (0,), (3,)), "save"),
    case_of("activations offloaded on one rank", more.offloads_activations, Fault("copy", 4 * MS, (2,)), "DtoH"),
    case_of("uneven prefetch, compute", more.uneven_prefetch, Fault("compute", 3 * MS, (3,)), "mm"),
    _nobody("uneven prefetch, even", _HEALTHY, lambda faults: more.uneven_prefetch(faults=faults)),
    case_of("a hot expert", more.hot_expert, Fault("compute", 3 * MS, (1,)), "_grouped_mm"),
    case_of("a hot expert under one kernel of a fixed grid", more.hot_expert, Fault("compute", 3 * MS, (1,)), "moe::run",
            has_shapes=False),
    case_of("a host slow at all", more.slow_at_all, Fault("host", 0, (1,)), "host"),
    case_of("one of two hosts slow at all", more.slow_at_all, Fault("host", 0, (1,)), "host", ranks=2, times=1.7),
    _nobody("two hosts that differ as hosts do", "Both hosts need|host needs", partial(_two_hosts, times=1.35),
            Fault("host", 0, (1,))),
    case_of("one of two ranks launches more", more.slow_at_all, Fault("host", 0, (1,)), "host", ranks=2, times=1.0,
            more=1.3),
    _nobody("hosts all slow at all", "hosts", lambda faults: more.slow_at_all(faults=faults, times=1.0)),
    _nobody("all validate every third step", _HEALTHY, lambda faults: more.validates(faults=faults)),
    case_of("validating job, loader", more.validates, Fault("data", 9 * MS, (1,)), LOADER),
    _nobody("two models in turn", _HEALTHY, lambda faults: more.two_models(faults=faults)),
    case_of("two models in turn, compute", more.two_models, Fault("compute", 2 * MS, (3,)), "mm"),
    case_of("pipeline, extra work on the first stage", more.pipeline_with_extra, Fault("compute", 3 * MS, (0,)), "mm"),
    _nobody("redundant exchanges", "exchange", lambda faults: more.redundant_exchanges(faults=faults)),
    case_of("tensor x pipeline x data, compute", cube, Fault("compute", 3 * MS, (5,)), "mm"),
    case_of("tensor x pipeline x data, gc", cube, Fault("gc", 8 * MS, (2,)), "gc.collect"),
    _nobody("tensor x pipeline x data, even", "ipeline", lambda faults: cube(faults=faults)),
    Case("two slow ranks, one behind the other", lambda faults: usual.ddp(6, 5, faults),
         (Fault("compute", 5 * MS, (1,)), Fault("compute", 3 * MS, (4,))), Truth((1, 4), "compute", "mm")),
    Case("two ranks late by two causes", lambda faults: usual.ddp(4, 5, faults),
         (Fault("compute", 4 * MS, (1,)), Fault("data", 5 * MS, (2,))), Truth((1, 2), "data and compute", LOADER)),
    Case("three ranks late by three causes", lambda faults: usual.ddp(5, 5, faults),
         (Fault("compute", 4 * MS, (1,)), Fault("copy", 4 * MS, (2,)), Fault("gc", 6 * MS, (4,))),
         Truth((1, 2, 4), "host and copies and compute", "gc.collect")),
    Case("a pair in a mesh, late by two causes", lambda faults: usual.tp_dp(2, 4, 5, faults),
         (Fault("copy", 4 * MS, (5,)), Fault("compute", 3 * MS, (2,))), Truth((2, 5), "copies and compute", "mm")),
    case_of("a straggler behind the loader", odd.accumulating, Fault("data", 8 * MS, (2,)), LOADER,
            left=(Fault("compute", 2 * MS, (1,)),), others=(1,)),
)  # fmt: skip
"""What has no gain in its truth cannot be mended by taking a fault away."""
