"""Jobs with a fault and the truth about each: who, when, by what, and what mending it would gain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.simulator import workloads
from tests.simulator.capture import Capture
from tests.simulator.engine import Run, run
from tests.simulator.faults import Fault, Faults
from tests.simulator.program import Job

MS = 1_000_000

LOADER = "DataLoader"


@dataclass(frozen=True)
class Truth:
    """What a report of the job has to say first, and what it must not.

    Attributes:
        ranks: those at fault; none where nobody is.
        cause: the kind of time that they need more of.
        what: text that names the operation.
        steps: in which it happens; `None` for all.
        says: text of the first line, where nobody is at fault.
        has_gain: whether the gain can be told (not of a step that no mean holds, nor without all files).
    """

    ranks: tuple[int, ...] = ()
    cause: str | None = None
    what: str = ""
    steps: tuple[int, ...] | None = None
    says: str = ""
    has_gain: bool = True


@dataclass(frozen=True)
class Case:
    """A job that can be run with its fault and without; `first` is the first step that is recorded.

    `left` are the faults that stay when what the truth says first is mended.
    """

    name: str
    job: Callable[[Faults], Job]
    faults: Faults
    truth: Truth
    how: Capture = field(default_factory=Capture)
    first: int = 0
    left: Faults = ()

    def gain_ns(self) -> int:
        """By how much a mean recorded complete step is longer than without the first fault: both are run."""
        with_fault, without = (_step_ns(run(self.job(faults)), self.first) for faults in (self.faults, self.left))
        return round(with_fault - without)


def recorded(case: Case, truth: Run) -> Capture:
    """How the case is captured: from its first recorded step on, where not from the start."""
    if not case.first:
        return case.how
    starts = {rank: _begins(truth, rank)[case.first] - 1 for rank in truth.host}
    return Capture(start_ns=starts, offset_ns=case.how.offset_ns, clock_step=case.how.clock_step,
                   missing=case.how.missing, cut=case.how.cut)  # fmt: skip


def _begins(truth: Run, rank: int) -> list[int]:
    return sorted(event.start_ns for event in truth.host[rank] if event.name.startswith("ProfilerStep#"))


def _step_ns(truth: Run, first: int) -> float:
    """Mean over ranks and complete steps of the GPU step: first operation to the next step's first."""
    lengths = []
    for rank, ops in truth.ops.items():
        begins = _begins(truth, rank)
        if not begins:
            return (max(op.end_ns for op in ops) - ops[0].start_ns) / 1
        firsts = [min(op.start_ns for op in ops if op.launch_start_ns >= begin) for begin in begins]
        lengths.append((firsts[-1] - firsts[first]) / (len(firsts) - 1 - first))
    return sum(lengths) / len(lengths)


def _case(name: str, job: Callable[..., Job], fault: Fault, what: str, *, first: int = 0,
          how: Capture | None = None, says_ranks: tuple[int, ...] | None = None, cause: str | None = None,
          has_gain: bool = True, left: Faults = (), **options: object) -> Case:  # fmt: skip
    known = {"eval": "compute", "gc": "host", "free": "host", "copy": "copies"}
    truth = Truth(says_ranks or fault.ranks, cause or known.get(fault.what, fault.what), what, fault.steps,
                  has_gain=has_gain)  # fmt: skip
    return Case(
        name, lambda faults: job(faults=faults, **options), (fault, *left), truth, how or Capture(), first, left
    )


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
    *(_case(f"ddp, one rank, {what}", _W.ddp, Fault(what, 3 * MS, (5,)), name) for what, name in _KINDS.items()),
    *(_case(f"fsdp, one rank, {what}", _W.fsdp, Fault(what, 3 * MS, (2,)), name) for what, name in _KINDS.items()),
    _case("hsdp, one rank, compute", _W.hsdp, Fault("compute", 2 * MS, (5,)), "mm"),
    _case("hsdp, one rank, host", _W.hsdp, Fault("host", 4 * MS, (10,)), "log_metrics"),
    _case("tp x dp, one rank, compute", _W.tp_dp, Fault("compute", 2 * MS, (6,)), "mm"),
    _case("tp x dp, one rank, loader", _W.tp_dp, Fault("data", 4 * MS, (9,)), LOADER),
    _case("ep in dp, one rank, compute", _W.ep_dp, Fault("compute", 2 * MS, (3,)), "mm"),
    _case("ep in dp, one rank, host", _W.ep_dp, Fault("host", 4 * MS, (6,)), "log_metrics"),
    _case("1f1b, one stage's host", _W.pipelined, Fault("gc", 20 * MS, (2,)), "gc.collect"),
    _case("interleaved, one rank's loader", _W.pipelined, Fault("data", 12 * MS, (1,)), LOADER, chunks=2),
    _case("offload, one rank's host", _W.offload, Fault("host", 6 * MS, (1,)), "log_metrics", optimizer_ns=3 * MS),
    _case("ddp, a node of 64", _W.ddp, Fault("compute", 2 * MS, _NODE), "mm", ranks=64, steps=4, layers=4),
    _case("hsdp, a node of 64", _W.hsdp, Fault("host", 4 * MS, _NODE), "log_metrics", shard=8, replicate=8, steps=4),
    _case("ddp, half of the ranks", _W.ddp, Fault("compute", 2 * MS, _HALF), "mm"),
    _case("ddp, once, evaluation", _W.ddp, Fault("eval", 6 * MS, (1,), (2,)), "conv"),
    _case("ddp, once, gc", _W.ddp, Fault("gc", 6 * MS, (3,), (2,)), "gc.collect"),
    _case("fsdp, steps 2 to 3, loader", _W.fsdp, Fault("data", 5 * MS, (6,), (2, 3)), LOADER, steps=7),
    _case("ddp, first recorded step", _W.ddp, Fault("compute", 5 * MS, (5,), (2,)), "mm", first=2),
    _case("hsdp, two recorded steps", _W.hsdp, Fault("compute", 4 * MS, (5,)), "mm", first=3),
    _case("fsdp, two recorded steps, host", _W.fsdp, Fault("host", 4 * MS, (3,)), "log_metrics", first=3),
    _case("ddp, last step", _W.ddp, Fault("compute", 5 * MS, (5,), (4,)), "mm", has_gain=False),
    _case("ddp, one file cut", _W.ddp, Fault("compute", 3 * MS, (5,)), "mm", how=Capture(cut={2: 0.8}), has_gain=False),
    _case("ddp, no steps", _W.ddp, Fault("compute", 3 * MS, (5,)), "mm", has_steps=False, has_gain=False),
    _case("ddp, clocks apart", _W.ddp, Fault("host", 3 * MS, (5,)), "log_metrics", how=Capture(offset_ns={5: 90 * MS})),
    _case("ddp of 6, another's host hidden", _W.ddp, Fault("compute", 5 * MS, (1,)), "mm", ranks=6, layers=12,
          left=(Fault("host", 2 * MS, (4,)),)),
    _case("ddp of 5, three by copies", _W.ddp, Fault("copy", 4 * MS, (0, 2, 3)), "HtoD", ranks=5, steps=6),
    _case("ddp of 12, two by compute", _W.ddp, Fault("compute", 5 * MS, (2, 7)), "mm", ranks=12, layers=5),
    _case("ddp of 3, once, free", _W.ddp, Fault("free", 9 * MS, (2,), (1,)), "cudaFree", ranks=3, steps=4),
    _case("fsdp of 6, host", _W.fsdp, Fault("host", 7 * MS, (4,)), "log_metrics", ranks=6, layers=10, steps=4),
    _case("fsdp, last step, gc", _W.fsdp, Fault("gc", 8 * MS, (1,), (4,)), "gc.collect", has_gain=False),
    _case("tp 2 x dp 6, now and then, gc", _W.tp_dp, Fault("gc", 6 * MS, (7,), (1, 3)), "gc.collect",
          tensor=2, data=6, steps=7),
    _case("ep 8 in dp 2, copies", _W.ep_dp, Fault("copy", 4 * MS, (11,)), "HtoD", expert=8, data=2),
    _case("hsdp 2 x 3, once, evaluation", _W.hsdp, Fault("eval", 7 * MS, (4,), (3,)), "conv", shard=2, replicate=3),
    _case("1f1b of 6, the first stage's loader", _W.pipelined, Fault("data", 15 * MS, (0,)), LOADER,
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
