"""Jobs with faults, and some without, as they are met most."""

from collections.abc import Mapping

from tests.simulator import workloads
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.faults import Fault, Faults
from tests.simulator.program import Job

_W = workloads
_NODE = tuple(range(8, 16))
_HALF = tuple(range(4))
_HOSTS = (764_000, 800_000, 780_000, 876_000, 790_000, 896_000, 880_000, 810_000)


def _in_turn(faults: Faults) -> Job:
    return _W.ddp(4, 9, faults)


_TURNS = tuple(Fault("compute", 2 * MS, (number % 4,), (number,)) for number in range(9))

_KINDS: Mapping[str, str] = {"compute": "mm", "host": "log_metrics", "copy": "HtoD", "data": LOADER,
                             "gc": "gc.collect", "free": "cudaFree"}  # fmt: skip

CASES: tuple[Case, ...] = (
    *(case_of(f"ddp, one rank, {what}", _W.ddp, Fault(what, 3 * MS, (5,)), name) for what, name in _KINDS.items()),
    *(case_of(f"fsdp, one rank, {what}", _W.fsdp, Fault(what, 3 * MS, (2,)), name) for what, name in _KINDS.items()),
    case_of("hsdp, one rank, compute", _W.hsdp, Fault("compute", 2 * MS, (5,)), "mm"),
    case_of("hsdp, one rank, host", _W.hsdp, Fault("host", 4 * MS, (10,)), "log_metrics"),
    case_of("tp x dp, one rank, compute", _W.tp_dp, Fault("compute", 2 * MS, (6,)), "mm"),
    case_of("tp x dp, one rank, loader", _W.tp_dp, Fault("data", 4 * MS, (9,)), LOADER),
    case_of("ep in dp, one rank, compute", _W.ep_dp, Fault("compute", 2 * MS, (3,)), "mm"),
    case_of("ep in dp, one rank, host", _W.ep_dp, Fault("host", 4 * MS, (6,)), "log_metrics"),
    case_of("1f1b, one stage's host", _W.pipelined, Fault("gc", 20 * MS, (2,)), "gc.collect"),
    case_of("interleaved, one rank's loader", _W.pipelined, Fault("data", 12 * MS, (1,)), LOADER, chunks=2),
    case_of("offload, one rank's host", _W.offload, Fault("host", 6 * MS, (1,)), "log_metrics", optimizer_ns=3 * MS),
    case_of("ddp, a node of 64", _W.ddp, Fault("compute", 2 * MS, _NODE), "mm", ranks=64, steps=4, layers=4),
    case_of("hsdp, a node of 64", _W.hsdp, Fault("host", 4 * MS, _NODE), "log_metrics", shard=8, replicate=8, steps=4),
    case_of("ddp, half of the ranks", _W.ddp, Fault("compute", 2 * MS, _HALF), "mm"),
    case_of("ddp, once, evaluation", _W.ddp, Fault("eval", 6 * MS, (1,), (2,)), "conv"),
    case_of("ddp, once, gc", _W.ddp, Fault("gc", 6 * MS, (3,), (2,)), "gc.collect"),
    case_of("fsdp, steps 2 to 3, loader", _W.fsdp, Fault("data", 5 * MS, (6,), (2, 3)), LOADER, steps=7),
    case_of("ddp, first recorded step", _W.ddp, Fault("compute", 5 * MS, (5,), (2,)), "mm", first=2),
    case_of("hsdp, two recorded steps", _W.hsdp, Fault("compute", 4 * MS, (5,)), "mm", first=3),
    case_of("fsdp, two recorded steps, host", _W.fsdp, Fault("host", 4 * MS, (3,)), "log_metrics", first=3),
    case_of("ddp, last step", _W.ddp, Fault("compute", 5 * MS, (5,), (4,)), "mm", has_gain=False),
    case_of("ddp, one file cut", _W.ddp, Fault("compute", 3 * MS, (5,)), "mm", how=Capture(cut={2: 0.8}), has_gain=False),
    case_of("ddp, no steps", _W.ddp, Fault("compute", 3 * MS, (5,)), "mm", has_steps=False, has_gain=False),
    case_of("ddp, clocks apart", _W.ddp, Fault("host", 3 * MS, (5,)), "log_metrics", how=Capture(offset_ns={5: 90 * MS})),
    case_of("ddp of 6, another's host hidden", _W.ddp, Fault("compute", 5 * MS, (1,)), "mm", ranks=6, layers=12,
          left=(Fault("host", 2 * MS, (4,)),), others=(4,)),
    case_of("ddp of 5, three by copies", _W.ddp, Fault("copy", 4 * MS, (0, 2, 3)), "HtoD", ranks=5, steps=6),
    case_of("ddp of 12, two by compute", _W.ddp, Fault("compute", 5 * MS, (2, 7)), "mm", ranks=12, layers=5),
    case_of("ddp of 3, once, free", _W.ddp, Fault("free", 9 * MS, (2,), (1,)), "cudaFree", ranks=3, steps=4),
    case_of("fsdp of 6, host", _W.fsdp, Fault("host", 7 * MS, (4,)), "log_metrics", ranks=6, layers=10, steps=4),
    case_of("fsdp, last step, gc", _W.fsdp, Fault("gc", 8 * MS, (1,), (4,)), "gc.collect", has_gain=False),
    case_of("tp 2 x dp 6, now and then, gc", _W.tp_dp, Fault("gc", 6 * MS, (7,), (1, 3)), "gc.collect",
          tensor=2, data=6, steps=7),
    case_of("ep 8 in dp 2, copies", _W.ep_dp, Fault("copy", 4 * MS, (11,)), "HtoD", expert=8, data=2),
    case_of("hsdp 2 x 3, once, evaluation", _W.hsdp, Fault("eval", 7 * MS, (4,), (3,)), "conv", shard=2, replicate=3),
    case_of("1f1b of 6, the first stage's loader", _W.pipelined, Fault("data", 15 * MS, (0,)), LOADER,
          stages=6, microbatches=12),
    Case("ddp, in turn", _in_turn, _TURNS, Truth((0, 1, 2, 3), "compute", "mm")),
    Case("ddp, mixed causes", lambda faults: _W.ddp(8, 8, faults),
         (Fault("data", 6 * MS, (5,), (2, 3, 4)), Fault("eval", 8 * MS, (5,), (6,))),
         Truth((5,), "data", LOADER, (2, 3, 4), has_gain=False)),
    Case("ddp, every host as slow", lambda faults: _W.ddp(8, 4, faults, own_host_ns=_HOSTS), (),
         Truth(says="all 8 hosts need")),
    Case("ddp, the straggler's file is missing", lambda faults: _W.ddp(8, 4, faults),
         (Fault("compute", 3 * MS, (5,)),), Truth(says="wait alike for a rank that is not here"),
         Capture(missing=(5,))),
    Case("ddp, clock step", lambda faults: _W.ddp(8, 6, faults), (),
         Truth(says="clock"), Capture(clock_step={3: (14 * MS, 40 * MS)})),
    Case("1f1b, even", lambda faults: _W.pipelined(4, 8, 4, faults), (), Truth(says="pipeline")),
    Case("1f1b, one heavy stage", lambda faults: _W.pipelined(4, 8, 4, faults, stage_ns=[500_000] * 3 + [800_000]), (),
         Truth(says="tage 3")),
    Case("ddp, even", lambda faults: _W.ddp(8, 4, faults), (), Truth(says="A step takes")),
    Case("hsdp, even", lambda faults: _W.hsdp(4, 4, 4, faults), (), Truth(says="A step takes")),
    Case("offload, even", lambda faults: _W.offload(2, 4, faults), (), Truth(says="Optimizer.step")),
)  # fmt: skip
