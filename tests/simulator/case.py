"""A job with a fault and the truth about it: who, when, by what, and what mending it would gain."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.simulator.capture import Capture
from tests.simulator.engine import Run, run
from tests.simulator.faults import Fault, Faults
from tests.simulator.program import Job

MS = 1_000_000

LOADER = "DataLoader"

HEALTHY = ""
"""Kinds that lead where there is nothing to fix: any that blames no rank."""

FOUR = (0, 1, 2, 3)
"""All ranks of four."""

APART = Capture(offset_ns={1: 2 * MS, 2: -MS, 3: 5 * MS, 5: -3 * MS})
"""Clocks that differ by some milliseconds."""


@dataclass(frozen=True)
class Truth:
    """What a report of the job has to say first, and what it must not.

    Attributes:
        ranks: those at fault; none where nobody is.
        cause: the kind of time that they need more of.
        what: text that names the operation.
        steps: in which it happens; `None` for all.
        kinds: kinds of findings that may lead, with blanks between; empty for any.
        has_gain: whether the gain can be told (not of a step that no mean holds, nor without all files).
        is_small: it may go unsaid.
        others: further ranks at fault.
        is_behind: what saves more for sure may come before it.
        is_gained: what is said first, where nobody is at fault, gains what the job without its faults does; told the
            step without a profiler, which a simulation has not.
    """

    ranks: tuple[int, ...] = ()
    cause: str | None = None
    what: str = ""
    steps: tuple[int, ...] | None = None
    kinds: str = ""
    has_gain: bool = True
    is_small: bool = False
    others: tuple[int, ...] = ()
    is_behind: bool = False
    is_gained: bool = False


@dataclass(frozen=True)
class Case:
    """A job that can be run with its fault and without; `first` is the first step that is recorded.

    `spoil` does to the files what happens to files: they are renamed, copied, edited, packed.
    `left` are the faults that stay when what the truth says first is mended; `is_of_capture` where what is gained is a
    part of all that was recorded and of no mean step. `by` is what recorded it: `kineto`, or Nsight Systems (`nsys`).
    """

    name: str
    job: Callable[[Faults], Job]
    faults: Faults
    truth: Truth
    how: Capture = field(default_factory=Capture)
    first: int = 0
    left: Faults = ()
    is_of_capture: bool = False
    spoil: Callable[[Path], None] | None = None
    by: str = "kineto"

    def step_ns(self) -> int:
        """The job's mean recorded complete step: nothing of it is a profiler's."""
        return round(self._step_ns(run(self.job(self.faults))))

    def gain_ns(self) -> int:
        """By how much a mean recorded complete step is longer than without the first fault: both are run."""
        with_fault, without = (self._step_ns(run(self.job(faults))) for faults in (self.faults, self.left))
        return round(with_fault - without)

    def _step_ns(self, truth: Run) -> float:
        """Mean step of the job: from when its last rank begins the first recorded one to when all ranks have done the last.

        Without steps the whole job's GPU time. Of late ranks alone a few steps would tell something else: a pipeline's
        stages begin at other times once they are mended. Over thirty steps any rank gives what this gives over four.
        """
        ranks = list(truth.ops)
        if self.is_of_capture or not _begins(truth, ranks[0]):
            every = truth.ops.values()
            return max(own[-1].end_ns for own in every) - min(own[0].start_ns for own in every)
        steps = min(len(_begins(truth, rank)) for rank in ranks) - self.first
        ends = max(op.end_ns for own in truth.ops.values() for op in own)
        return (ends - max(_begin(truth, rank, self.first) for rank in ranks)) / steps


def _begin(truth: Run, rank: int, step: int) -> int:
    """When the rank begins a step: its host does, and its GPU has done what was launched before."""
    host_ns = _begins(truth, rank)[step]
    return max(host_ns, *(op.end_ns for op in truth.ops[rank] if op.launch_start_ns < host_ns), host_ns)


def recorded(case: Case, truth: Run) -> Capture:
    """How the case is captured: from its first recorded step on, where not from the start."""
    if not case.first:
        return case.how
    starts = {rank: _begins(truth, rank)[case.first] - 1 for rank in truth.host}
    return Capture(start_ns=starts, offset_ns=case.how.offset_ns, clock_step=case.how.clock_step,
                   missing=case.how.missing, cut=case.how.cut)  # fmt: skip


def _begins(truth: Run, rank: int) -> list[int]:
    return sorted(event.start_ns for event in truth.host[rank] if event.name.startswith("ProfilerStep#"))


def case_of(name: str, job: Callable[..., Job], fault: Fault, what: str, *, says_ranks: tuple[int, ...] | None = None,
            cause: str | None = None, has_gain: bool = True, is_small: bool = False, others: tuple[int, ...] = (),
            left: Faults = (), is_behind: bool = False, **options: object) -> Case:  # fmt: skip
    """A case of one fault, and others that are `left` when it is mended; `options` are `several`'s and the job's."""
    known = {"eval": "compute", "throttle": "compute", "copy": "copies", "link": "transfer",
             **dict.fromkeys(("gc", "free", "malloc", "save", "item", "silent"), "host")}  # fmt: skip
    truth = Truth(says_ranks or fault.ranks, cause or known.get(fault.what, fault.what), what, fault.steps,
                  has_gain=has_gain, is_small=is_small, others=others, is_behind=is_behind)  # fmt: skip
    return several(name, job, (fault, *left), truth, left=left, **options)


def nobody(name: str, kinds: str, job: Callable[..., Job], *faults: Fault, others: tuple[int, ...] = (),
           is_gained: bool = False, **options: object) -> Case:  # fmt: skip
    """Nobody's fault comes first: one of these kinds leads; what is found of `others` is true."""
    return several(name, job, faults, Truth(kinds=kinds, others=others, is_gained=is_gained), **options)


def several(name: str, job: Callable[..., Job], faults: Faults, truth: Truth, *, how: Capture | None = None,
            first: int = 0, left: Faults = (), is_of_capture: bool = False, spoil: Callable[[Path], None] | None = None,
            by: str = "kineto", **options: object) -> Case:  # fmt: skip
    """A case of any faults, with the truth about them; `options` are the job's."""
    return Case(name, lambda own: job(faults=own, **options), faults, truth, how or Capture(), first, left,
                is_of_capture, spoil, by)  # fmt: skip


def on_nodes(job: Callable[..., Job], each: int) -> Callable[..., Job]:
    """The job, by name and options, on nodes of `each` ranks that its files name."""

    def made(**options: object) -> Job:
        plain = job(**options)
        return replace(plain, hosts=tuple(f"node{rank // each}" for rank in range(len(plain.programs))))

    return made
