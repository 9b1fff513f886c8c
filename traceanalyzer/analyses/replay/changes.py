"""What may be changed about a job, how it is written, and what the profiler costs."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from msgspec import Struct

from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.pipelines.orders import ORDERS, read_schedule
from traceanalyzer.errors import UsageError
from traceanalyzer.meaning.columns import chosen
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

# What recording takes the hosts: the PyTorch profiler stops for every operator and call that it writes down.


TYPICAL, LEAST, MOST = "none", "least", "most"

COST_NS: Mapping[str, int] = MappingProxyType({TYPICAL: 3_200, LEAST: 1_700, MOST: 5_700})
"""Estimated cost of one recorded operator or call of the CUDA interface, with shapes, without Python stacks.

Solved for from the step without a profiler: 1.7 to 4.3 µs on four in five of 21 CPU-bound jobs of H100s
(docs/results/calibration.md), 3.8 to 5.7 µs on other machines.
Nothing in a trace tells it better: predicted by launches' lengths, the shortest operators or gaps between nested
records, 44 jobs of five sets, each set left out in turn, are off by a factor of 1.27 to 1.31, by this constant of 1.27.
"""

RUN_TO_RUN = 0.05
"""Steps of one job without a profiler differ by up to so much from one run to the next: docs/accuracy.md."""

PLAIN_LAUNCH_NS = 10_000
"""What launching a CUDA graph takes without a profiler, whatever it holds."""

READY_NS = 2_000_000
"""Who takes a batch that is there is done within this time."""

ESTIMATED = "kineto"
"""The format of the profiler whose cost is estimated: what others cost is known where the step without them is."""


def recorded_calls(trace: RankTrace, threads: np.ndarray, since: np.ndarray, until: np.ndarray) -> np.ndarray:
    """How many operators and calls the profiler wrote down of the threads from each time until another.

    The launch of a CUDA graph counts for what it launches, too.
    """
    frames = (trace.api_calls, trace.host_ops)
    starts = [array_of(frame, "start_ns")[np.isin(array_of(frame, "thread"), threads)] for frame in frames]
    begun = np.sort(np.concatenate([*starts, _of_graphs(trace, threads)]))
    count: np.ndarray = np.searchsorted(begun, until) - np.searchsorted(begun, since)
    return count


def _of_graphs(trace: RankTrace, threads: np.ndarray) -> np.ndarray:
    """Start of the call that launches a graph for each of the graph's operations that is written down in it.

    Such a call takes some 2 µs longer for each; of no more than fit in it at the most that each may cost.
    """
    calls = trace.api_calls
    rows = np.flatnonzero(
        host_names.matches(calls["name"], host_names.is_graph_launch) & np.isin(calls["thread"], threads)
    )
    launch = array_of(trace.gpu_ops, "launch")
    launched = np.bincount(launch[launch != NONE], minlength=len(calls))[rows]
    starts = array_of(calls, "start_ns")[rows]
    spare_ns = array_of(calls, "end_ns")[rows] - starts - PLAIN_LAUNCH_NS
    return np.repeat(starts, np.clip(launched, 0, np.maximum(spare_ns, 0) // COST_NS[MOST]))


def stretches_taken_up(made_meanwhile_ns: np.ndarray, is_after_gpu: np.ndarray) -> np.ndarray:
    """Of each stretch of a host in which it waits for workers' batch, how many up to it that wait takes up; else 0.

    The workers do not hurry because the host comes sooner: what it saves since it last waited, for them or for the
    GPU, it waits for longer.

    Args:
        made_meanwhile_ns: of each stretch the time in which the host takes a batch that other processes make.
        is_after_gpu: the stretches before which the host waited for the GPU.
    """
    waits = made_meanwhile_ns >= READY_NS
    place = np.arange(len(waits))
    begins = is_after_gpu | np.append(False, waits[:-1])[: len(waits)]
    since = np.maximum.accumulate(np.where(begins, place, 0)) if len(place) else place
    return np.where(waits, place + 1 - since, 0)


def with_waits_for_workers(without_ns: np.ndarray, recorded_ns: np.ndarray, takes_up: np.ndarray) -> np.ndarray:
    """The host's stretches without the cost of recording, and with what waits for workers' batches take up of that."""
    waits = np.flatnonzero(takes_up)
    found = without_ns.copy()
    if len(waits):
        saved = np.append(0, np.cumsum(recorded_ns - without_ns))
        found[waits] += saved[waits + 1] - saved[waits + 1 - takes_up[waits]]
    return found


# What may be changed about a job, and how it is written.


PEERS, EVEN, IDEAL, ALONE, USUAL = "peers", "even", "ideal", "alone", "usual"

NOT_MADE = "none"
"""What calls of a collective become that are not made, with the copies and CPU work around them."""

Changeable = Literal[
    "rank", "stage", "cpu", "data", "memory", "profiler", "compute", "copy", "comm", "waits", "links", "small", "sync",
    "operator", "kernel", "collective", "loop", "delays", "unmatched", "schedule",
]  # fmt: skip
"""The parts of a job that can be changed."""


class Part(Struct, frozen=True):
    """How a part of a job can be changed.

    Attributes:
        what: what it is.
        words: what it may become, by the word that people write; `none`, `free` and `ready` are factors of 0.
        has_factor: it may become a factor of speed, too, such as `2x`.
        needs_name: it is of one name.
        may_be_named: it may be.
        is_of_cpus: only a capture with the CPU side has it.
    """

    what: str
    words: Mapping[str, float | str]
    has_factor: bool = True
    needs_name: bool = False
    may_be_named: bool = False
    is_of_cpus: bool = False


def _part(what: str, words: str = "", **more: bool) -> Part:
    return Part(what, {word: 0.0 if word in ("none", "free", "ready") else word for word in words.split()}, **more)


PARTS: Mapping[Changeable, Part] = MappingProxyType(
    {
        "rank": _part("all that the ranks do themselves: CPU work, compute and copies", "peers even"),
        "stage": _part("the same of all ranks of a pipeline's stage, counted from 0", "peers even ideal"),
        "cpu": _part("CPU work: all but loading data and waiting for the GPU", "none peers even", is_of_cpus=True),
        "data": _part("CPU work in the data loader", "ready none", is_of_cpus=True),
        "memory": _part("CPU work in calls that take GPU memory or give it back", "none", is_of_cpus=True),
        "profiler": Part("its overhead on CPUs", {word: word for word in COST_NS}, has_factor=False, is_of_cpus=True),
        "compute": _part("compute kernels", "free peers even alone"),
        "copy": _part("copies", "free peers even"),
        "comm": _part("transfers: communication once the last partner is there", "free peers even"),
        "waits": _part("waiting for partners that come later", "none", has_factor=False),
        "links": _part("transfers, by the bus bandwidth in GB/s that they reach"),
        "small": _part("transfers of at most 1 MiB of collectives that buckets can hold", "free"),
        "sync": _part("waiting of CPUs for the GPU; of one call, in a phase: `cudaStreamSynchronize@optimizer`", "none",
                      has_factor=False, may_be_named=True, is_of_cpus=True),
        "operator": _part("GPU operations that an operator launched; `NAME@backward` in one autograd pass, "
                          "`@recompute` all of a pass", "free", needs_name=True),
        "kernel": _part("GPU operations whose name contains a text", "free", needs_name=True),
        "collective": Part("transfers of a collective (`messages`: sends and receives), with `none` the calls; those "
                           "of a phase by `all_gather@backward`, the first of each step by `all_reduce@3/4`, of a "
                           "group by `all_reduce@3/4@1,3`", {"free": 0.0, USUAL: USUAL, NOT_MADE: NOT_MADE},
                           needs_name=True),
        "loop": _part("CPU work for a loop's turns behind the first (table launch_loops), and its waits for the GPU",
                      "none", needs_name=True, is_of_cpus=True),
        "delays": _part("start delays and late returns without a recorded cause", "none", has_factor=False),
        "unmatched": _part("waiting for partners that are not in the capture", "none", has_factor=False),
        "schedule": _part("the order in which pipelines run their passes", " ".join(ORDERS)),
    }
)  # fmt: skip

OF_HOSTS = tuple(name for name, part in PARTS.items() if part.is_of_cpus)
"""Parts that only a capture with the CPU side has."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is different in a replay.

    Attributes:
        part: what of the job.
        to: a factor of its recorded lengths (0.5: twice as fast), a bus bandwidth in GB/s (`links`), a schedule with
            stages a rank (`interleaved:2`), or a word: `peers`, the median of the same work of ranks that are not
            changed (of transfers of others of the collective and size, else what others take at most for so many bytes,
            else none); `even`, the mean over all ranks that do the same; `ideal`, even without CPU time and messages;
            `alone`, the median without communication beside it; `usual`, the median of the same ranks' transfers of
            that size in other steps; `none` (a collective), not made, nor the copies launched right before and after
            it; `none`, `least`, `most` (profiler), the CPU time less that estimate of its overhead.
        ranks: only these, or of `stage` these stages; `None` is all.
        steps: only these; `None` is all.
        name: of the operator (with `@` and an autograd pass, if only there), kernel, collective, loop or blocking call.
    """

    part: Changeable
    to: float | str = 0.0
    ranks: frozenset[int] | None = None
    steps: frozenset[int] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise UsageError(f"no part of a job is called {self.part!r}; there are {', '.join(PARTS)}")
        part = PARTS[self.part]
        if part.needs_name and not self.name:
            raise UsageError(f"{self.part}: say which, by name")
        if self.name and not (part.needs_name or part.may_be_named):
            raise UsageError(f"{self.part}: takes no name")
        if self.part == "schedule":
            self._check_schedule()
            return
        if isinstance(self.to, str) and self.to not in part.words.values():
            raise UsageError(f"{self.part} cannot become {self.to!r}; it can {' or '.join(part.words)}")
        if self.to == IDEAL and self.ranks:
            raise UsageError("stage: all stages become ideal together; write stage ideal")
        if self.to == USUAL and not self.steps:
            raise UsageError(
                f"{self.part} {self.name}: what is usual is that of other steps; say in which it becomes so"
            )
        if self.part == "links" and not (isinstance(self.to, float | int) and self.to > 0):
            raise UsageError("links: say their bus bandwidth in GB/s, such as 400")
        if not isinstance(self.to, str) and self.to < 0:
            raise UsageError(f"{self.part} cannot take {self.to} times as long")

    def _check_schedule(self) -> None:
        read_schedule(str(self.to))
        if self.ranks is not None or self.steps is not None:
            raise UsageError("schedule: all ranks and steps take it; write schedule 1f1b, without ranks or --in-steps")

    def __str__(self) -> str:
        if self.part == "schedule":
            return f"schedule {self.to}"
        word = next((word for word, value in PARTS[self.part].words.items() if value == self.to), None)
        if self.part == "links":
            word = _plain(float(self.to), 6)
        to = word or (f"{_plain(1 / self.to, 3)}x" if not isinstance(self.to, str) and self.to else "free")
        where = self.name or (_listed(self.ranks) if self.ranks else "")
        steps = f" in step{'s' if len(self.steps) > 1 else ''} {_listed(self.steps)}" if self.steps else ""
        return f"{self.part} {where}{'=' if where else ''}{to}{steps}"


def _plain(number: float, digits: int) -> str:
    """With so many digits that count, and without an exponent, which nobody types."""
    return np.format_float_positional(number, digits, fractional=False, trim="-")


UNRECORDED = Change("profiler", TYPICAL)
"""The job as without a profiler, by the typical cost of recording."""

EXPLAINED = Change("delays")
"""The job with nothing that its graph does not explain."""

UNMATCHED = Change("unmatched")
"""The job without waits for partners that the capture does not know."""


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


# Changes as people write them: `rank 7=peers`, `host none`, `operator aten::mm=2x`.


_FACTOR = re.compile(r"(\d+(?:\.\d+)?)x")

_RANKS = re.compile(r"[\d,\s-]+")

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:\s*GB/s)?")

_IN_STEPS = re.compile(r" in steps? ([\d,\s-]+)$")


def read_change(text: str) -> Change:
    """The change that a text of a part and what becomes of it names: `cpu 0=peers`, `cpu 0=peers in steps 3,4`.

    Raises:
        UsageError: it names none.
    """
    text = text.strip()
    within = _IN_STEPS.search(text)
    steps = chosen(within[1]) if within else None
    part, _, rest = (text[: within.start()] if within else text).partition(" ")
    return change_of(part, rest.strip(), steps)


def change_of(name: str, text: str, steps: frozenset[int] | None = None) -> Change:
    """`WHAT`, `RANKS=WHAT` or `NAME=WHAT` of a part; `WHAT` is a word of the part or a factor of speed such as `2x`.

    Raises:
        UsageError: the part or the text is something else.
    """
    name = "cpu" if name == "host" else name  # as it was called
    part: Changeable | None = next((one for one in PARTS if one == name), None)
    if part is None:
        raise UsageError(f"no part of a job is called {name!r}; there are {', '.join(PARTS)}")
    known = PARTS[part]
    if part == "schedule":
        return Change(part, text.strip(), steps=steps)
    where, equals, what = text.rpartition("=")
    of_all = part == "stage" and what.strip() in (EVEN, IDEAL)
    if not equals and not of_all and (known.needs_name or part in ("rank", "stage")):
        raise UsageError(f"{part} {text!r}: say which, such as {part} {'NAME=2x' if known.needs_name else '7=peers'}")
    is_named = known.needs_name or (known.may_be_named and bool(equals) and not _RANKS.fullmatch(where))
    ranks = chosen(where) if equals and not is_named else None
    return Change(part, _becomes(part, what.strip()), ranks, steps, where.strip() if is_named else None)


def _becomes(part: Changeable, what: str) -> float | str:
    if part == "links":
        rate = _RATE.fullmatch(what)
        if not rate:
            raise UsageError(f"links cannot become {what!r}; write their bus bandwidth in GB/s, such as 400")
        return float(rate[1])
    known, factor = PARTS[part], _FACTOR.fullmatch(what)
    if factor and float(factor[1]) > 0 and known.has_factor:
        return 1 / float(factor[1])
    if what not in known.words:
        words = [*known.words, *(("a factor of speed such as 2x",) if known.has_factor else ())]
        raise UsageError(f"{part} cannot become {what!r}; write {' or '.join(words)}")
    return known.words[what]
