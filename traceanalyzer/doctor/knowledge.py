"""What the doctor knows and says: `knowledge.toml`, messages that it knows, and the texts of a rule's facts."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import jinja2
import msgspec
import pandas as pd

from traceanalyzer.meaning.columns import size_text, time_text
from traceanalyzer.meaning.vocabulary import Severity, first_upper, numbered
from traceanalyzer.model.schema import printable

if TYPE_CHECKING:
    from traceanalyzer.doctor.flight_recorder import FlightRecorder
    from traceanalyzer.doctor.monitors import Monitors, RasReport
    from traceanalyzer.doctor.nccl_log import NcclLog
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
        monitors: records of NCCL Inspector, NCCL's profiler plugin and xpu_timer.
        ras: what `ncclras` printed.
        gpus: what `nvidia-smi` lists.
        nvlinks: GPU → its active NVLinks, by `nvidia-smi nvlink -s`.
    """

    topology: "Topology | None" = None
    logs: "tuple[NcclLog, ...]" = ()
    recorder: "FlightRecorder | None" = None
    monitors: "Monitors | None" = None
    ras: "RasReport | None" = None
    gpus: "tuple[Gpu, ...]" = ()
    nvlinks: Mapping[str, int] = field(default_factory=dict)


class Known(msgspec.Struct, frozen=True):
    """One kind of message: how severe it is, its pattern, and its texts; `settings` of NCCL change it."""

    severity: Severity
    pattern: str
    headline: str
    why: str
    fix: str
    settings: tuple[str, ...] = ()


class Knowledge(msgspec.Struct, frozen=True):
    """What `knowledge.toml` holds: its comments say what each part is."""

    lines: dict[str, dict[str, str]]
    stems: tuple[str, ...]
    messages: tuple[Known, ...]
    ib_status: dict[str, str]
    xid: dict[str, str]
    settings: dict[str, str]
    rules: dict[str, dict[str, str]]


KNOWLEDGE = msgspec.toml.decode(files("traceanalyzer.doctor").joinpath("knowledge.toml").read_bytes(), type=Knowledge)

_MESSAGES = [re.compile(known.pattern, re.IGNORECASE) for known in KNOWLEDGE.messages]


def known_error(text: str) -> tuple[int, re.Match[str]] | None:
    """Which of the known messages a line is, with what its pattern found; `None` for all others."""
    lowered = text.lower()
    if not any(stem in lowered for stem in KNOWLEDGE.stems):
        return None
    return next(((number, match) for number, one in enumerate(_MESSAGES) if (match := one.search(text))), None)


def said(rule: str, facts: Mapping[str, Any]) -> Diagnosis:
    """What a rule's facts mean, in the words that `knowledge.toml` has for the rule.

    Texts are printable: logs and dumps hold what programs wrote into them.
    """
    texts = {name: printable(_template(text).render(facts).strip()) for name, text in KNOWLEDGE.rules[rule].items()}
    known: dict[str, Any] = {name: text for name, text in texts.items() if text}
    return Diagnosis(rule=rule, ranks=tuple(facts.get("ranks", ())), **known)


@cache
def _template(text: str) -> jinja2.Template:
    return _environment().from_string(text)


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(undefined=jinja2.StrictUndefined)  # noqa: S701 - plain texts, which pages escape
    made.filters |= {
        "ranks": lambda ranks: numbered("rank", ranks),
        "gpus": lambda numbers: numbered("GPU", numbers),
        "start": first_upper,
        "counted": lambda names: counted(Counter(names)),
        "call": lambda row: f"{operation_words(row.operation)} number {row.seq}",
        "since": _since,
        "time": time_text,
        "size": size_text,
        "some": _some,
    }
    return made


def _since(row: Any) -> str:
    """` since 2026-01-02 03:04:05 UTC` of a recorder's call, or nothing where its time is not known."""
    if pd.isna(row.created_ns):
        return ""
    return f" since {datetime.fromtimestamp(row.created_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S UTC}"


def _some(names: Collection[str], most: int = 8) -> str:
    """The first names, and whether there are more."""
    return ", ".join(list(names)[:most]) + (" and more" if len(names) > most else "")


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
