"""What may be changed about a job, and how it is written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from traceanalyzer.analyses.replay.recording import COST_NS, TYPICAL
from traceanalyzer.analyses.replay.schedule_orders import ORDERS, read_schedule
from traceanalyzer.errors import UsageError

PEERS, EVEN, IDEAL, FASTEST, HIDDEN, ALONE, USUAL = "peers", "even", "ideal", "fastest", "hidden", "alone", "usual"

Changeable = Literal[
    "rank", "stage", "host", "data", "memory", "profiler", "compute", "copy", "comm", "waits", "links", "small", "sync",
    "operator", "kernel", "collective", "loop", "delays", "schedule",
]  # fmt: skip
"""The parts of a job that can be changed."""

PARTS: Mapping[Changeable, str] = MappingProxyType(
    {
        "rank": "all that the ranks do themselves: their hosts' work, compute and copies",
        "stage": "the same of all ranks of a pipeline's stage, which is counted by ranks from 0",
        "host": "the hosts' work: all time in which they are not blocked by the GPU",
        "data": "the part of the hosts' work that is in the data loader",
        "memory": "the part of the hosts' work that is in calls that take GPU memory or give it back",
        "profiler": "what recording takes the hosts: an estimated 3.2 µs (least 1, most 6) for every operator and call",
        "compute": "compute kernels",
        "copy": "copies",
        "comm": "transfers: what is left of communication once the last partner is there",
        "waits": "waiting for partners that come later",
        "links": "transfers, by the bus bandwidth in GB/s that they reach",
        "small": "transfers of at most 1 MiB of collectives that buckets can hold",
        "sync": "waiting of hosts in calls that block until the GPU is done",
        "operator": "GPU operations that an operator of this name launched",
        "kernel": "GPU operations whose name contains this text",
        "collective": "transfers of this collective; `messages` are all sends and receives",
        "loop": "the hosts' work for a loop's turns behind the first (table launch_loops), and their waits for the GPU",
        "delays": "what no recorded dependency explains of when operations start and blocking calls return",
        "schedule": "the order in which pipelines run their passes",
    }
)
"""What each of them is."""

NAMED: tuple[Changeable, ...] = ("operator", "kernel", "collective", "loop")
"""Parts that need a name."""

MAY_BE_NAMED: tuple[Changeable, ...] = (*NAMED, "sync")
"""Parts that may have one: of `sync` the call, and its phase, such as `cudaStreamSynchronize@optimizer`."""

OF_HOSTS: tuple[Changeable, ...] = ("host", "data", "memory", "profiler", "sync", "loop")
"""Parts that only a capture with the host's side has."""

WORDS: Mapping[Changeable, Mapping[str, float | str]] = MappingProxyType(
    {
        "rank": {PEERS: PEERS, EVEN: EVEN},
        "stage": {PEERS: PEERS, EVEN: EVEN, IDEAL: IDEAL},
        "host": {"none": 0.0, PEERS: PEERS, EVEN: EVEN, FASTEST: FASTEST},
        "data": {"ready": 0.0, "none": 0.0},
        "memory": {"none": 0.0},
        "profiler": {word: word for word in COST_NS},
        "compute": {"free": 0.0, PEERS: PEERS, EVEN: EVEN, ALONE: ALONE},
        "copy": {"free": 0.0, PEERS: PEERS, EVEN: EVEN},
        "comm": {"free": 0.0, PEERS: PEERS, EVEN: EVEN, HIDDEN: HIDDEN},
        "links": {},
        "small": {"free": 0.0},
        "waits": {"none": 0.0},
        "sync": {"none": 0.0},
        **{part: {"free": 0.0} for part in NAMED},
        "collective": {"free": 0.0, USUAL: USUAL},
        "loop": {"none": 0.0},
        "delays": {"none": 0.0},
        "schedule": {name: name for name in ORDERS},
    }
)
"""For each part the words that say what becomes of it; but for waits, syncs, profiler there are factors, too: `2x`."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is different in a replay.

    Attributes:
        part: what of the job.
        to: what its recorded lengths are multiplied with (0.5: twice as fast; 0: gone), or `peers`: the median of the
            same work of the ranks that do the same and are not changed themselves (of transfers between changed ranks
            that of others of the same collective and size, or what others take at most for so many bytes; none where
            they have no such); `even`: its mean over
            all ranks that do the same, of a pipeline's stages all of their work put together (of a transfer the median
            of those of the same collective and size); `ideal` (stages): even, and neither hosts nor messages take time:
            what is left of the bubble is the schedule's own; `fastest` (hosts): the rank that needs least in a step;
            `hidden` (communication): nothing on other streams waits for transfers; `usual` (a collective in some
            steps): the median of the same ranks' transfers of that size in the other steps; `alone` (compute): the
            median of the same work when no communication runs beside it; `none`, `least`, `most` (profiler):
            the hosts' time less what recording is estimated to take. Of `links` their bus bandwidth in GB/s; of
            `schedule` its name (`schedule_orders`), with stages a rank such as `interleaved:2`.
        ranks: only these, or of `stage` these stages; `None` is all.
        steps: only these; `None` is all.
        name: of the operator, kernel, collective, loop or blocking call.
    """

    part: Changeable
    to: float | str = 0.0
    ranks: frozenset[int] | None = None
    steps: frozenset[int] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise UsageError(f"no part of a job is called {self.part!r}; there are {', '.join(PARTS)}")
        if (not self.name and self.part in NAMED) or (self.name and self.part not in MAY_BE_NAMED):
            raise UsageError(f"{self.part}: " + ("say which, by name" if not self.name else "takes no name"))
        if self.part == "schedule":
            self._check_schedule()
            return
        words = WORDS[self.part]
        if isinstance(self.to, str) and self.to not in words.values():
            raise UsageError(f"{self.part} cannot become {self.to!r}; it can {' or '.join(words)}")
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

    @property
    def only_shortens(self) -> bool:
        """Whether nothing takes longer after it; what peers take, or the mean of all, may be more than a rank's own."""
        if isinstance(self.to, str):
            return self.to not in (PEERS, EVEN, IDEAL) and self.part != "schedule"
        return self.part == "links" or self.to <= 1

    def __str__(self) -> str:
        if self.part == "schedule":
            return f"schedule {self.to}"
        word = next((word for word, value in WORDS[self.part].items() if value == self.to), None)
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


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))
