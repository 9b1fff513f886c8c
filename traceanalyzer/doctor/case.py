"""What the doctor reads and reports: cases and diagnoses."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from traceanalyzer.meaning.vocabulary import Severity

if TYPE_CHECKING:
    from traceanalyzer.doctor.flight_recorder import FlightRecorder
    from traceanalyzer.doctor.hang import Standing
    from traceanalyzer.doctor.monitors import Monitors, RasReport
    from traceanalyzer.doctor.nccl_log import Link, NcclLog
    from traceanalyzer.doctor.topology import Gpu, Topology


K = TypeVar("K")
T = TypeVar("T")

Facts = Mapping[str, Any]
"""What a rule finds, by the names that its templates in `knowledge.toml` have for it; `ranks` are those it is about."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that the inputs tell.

    Attributes:
        rule: the name of the function that finds it, by which `knowledge.toml` has its texts.
        severity: one of SEVERITIES; `info` is healthy, or harmless.
        diagnosis: what it means, in one or two sentences.
        signal: what in the input says so.
        recommendation: what to do; `None` when nothing is to be done.
        caveat: when it may not hold.
        ranks: the ranks that it is about, as the job counts them.
    """

    rule: str = field(default="", kw_only=True)
    severity: Severity = field(default="info", kw_only=True)
    diagnosis: str
    signal: str = ""
    recommendation: str | None = None
    caveat: str | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """What rules see.

    Attributes:
        topology: of one machine.
        logs: one a job.
        recorder: the flight recorder's dumps.
        standing: where its ranks stand; there when `recorder` is.
        monitors: records of NCCL Inspector, NCCL's profiler plugin and xpu_timer.
        ras: what `ncclras` printed.
        gpus: what `nvidia-smi` lists.
        nvlinks: GPU → its active NVLinks, by `nvidia-smi nvlink -s`.
    """

    topology: "Topology | None" = None
    logs: "tuple[NcclLog, ...]" = ()
    recorder: "FlightRecorder | None" = None
    standing: "Standing | None" = None
    monitors: "Monitors | None" = None
    ras: "RasReport | None" = None
    gpus: "tuple[Gpu, ...]" = ()
    nvlinks: "Mapping[str, int]" = field(default_factory=dict)


_OPERATIONS = re.compile(r"(all|reduce)_?(?=gather|reduce|to|scatter)|(?<=to)_?(?=all)")


def operation_words(operation: object) -> str:
    """`ALLREDUCE`, `all_reduce` → `all-reduce`; `_ALLGATHER_BASE` → `all-gather`; `ALLTOALL_BASE` → `all-to-all`."""
    plain = str(operation).lower().strip("_").removesuffix("_base")
    return _OPERATIONS.sub(r"\1-", plain).replace("_", "-") or "a collective"


def by_value(values: Mapping[K, T]) -> dict[T, list[K]]:
    """Value → the keys that have it."""
    made: dict[T, list[K]] = {}
    for key, value in values.items():
        made.setdefault(value, []).append(key)
    return made


def counted(counts: Counter[str]) -> str:
    """`24 × P2P, 2 × SHM`, the most first."""
    return ", ".join(f"{count} × {name}" for name, count in counts.most_common())


def gpus_of(link: "Link", log: "NcclLog", topology: "Topology") -> tuple[str, str] | None:
    """The two GPUs that a connection joins, as the topology names them; `None` when the log does not tell."""
    ends = log.ends(link)
    numbers: list[int | None] = []
    if ends and ends[0].process[0] == ends[1].process[0]:
        numbers = [one.device if one.gpu is None else one.gpu for one in ends]
    elif log.is_one_node and log.world <= len(topology.gpus):
        numbers = [link.source, link.target]
    names = [f"GPU{number}" for number in numbers if number is not None]
    return (names[0], names[1]) if len(names) == 2 and set(names) <= set(topology.gpus) else None
