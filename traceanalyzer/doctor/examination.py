"""An examination: inputs read, put together, what the rules report, and tables of them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.doctor import flight_recorder as recorders
from traceanalyzer.doctor import monitors as monitoring
from traceanalyzer.doctor import rules, topology, watchdog
from traceanalyzer.doctor.inputs import left_out, log_files, read_text
from traceanalyzer.doctor.knowledge import KNOWLEDGE, Case, Diagnosis, Facts, counted, said
from traceanalyzer.doctor.monitors import arrivals, bandwidth, is_ras, parse_ras, products, read_monitors
from traceanalyzer.doctor.nccl_log import Member, NcclLog, holds_log, read_logs
from traceanalyzer.errors import UsageError
from traceanalyzer.meaning.vocabulary import SEVERITIES
from traceanalyzer.model.schema import printable


@dataclass(frozen=True, slots=True)
class Examination:
    """What was given, and what it shows.

    Attributes:
        case: the inputs, read.
        diagnoses: what the rules report, the most severe first.
        notes: what could not be read, and why.
    """

    case: Case
    diagnoses: tuple[Diagnosis, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> tuple[str, ...]:
        """What to read first: the diagnoses of most severity, or that nothing is wrong with what was given."""
        worst = [one for one in self.diagnoses if one.severity != "info"]
        if worst:
            return tuple(one.diagnosis for one in worst[:3])
        return ("No problem found in these inputs.", *(one.diagnosis for one in self.diagnoses[:2]))


Text = tuple[str, str]
"""Name and content."""


def examine(
    *,
    topo: Path | Text | None = None,
    nccl_logs: Sequence[Path | Text] = (),
    flight_recorder: Path | None = None,
    monitors: Sequence[Path] = (),
    follows_links: bool = False,
) -> Examination:
    """Read what there is and report what it shows.

    Args:
        topo: a file with what `nvidia-smi topo -m` prints, or its name and text.
        nccl_logs: files, folders of them, or names and texts; what `ncclras` and `nvidia-smi` printed may be there too.
        flight_recorder: a folder of dumps, or one.
        monitors: files of NCCL Inspector, NCCL's profiler plugin and xpu_timer, or folders of them.
        follows_links: whether links that lead out of a folder are read.

    Raises:
        UsageError: nothing was given.
        InputError: an input holds nothing of its kind.
    """
    if not (topo or nccl_logs or flight_recorder or monitors):
        raise UsageError(
            "nothing to examine: give a folder of logs and dumps, --run, or one of --topo, --nccl-log, "
            "--flight-recorder and --monitor"
        )
    given = [text for place in nccl_logs for text in _texts(place, follows_links)]
    matrix = None if topo is None else _texts(topo, follows_links)[0]
    texts = [text for _, text in (*given, *filter(None, [matrix]))]
    recorder = (
        None
        if flight_recorder is None
        else recorders.read_flight_recorder(flight_recorder, follows_links=follows_links)
    )
    records = read_monitors(monitors, follows_links=follows_links) if monitors else None
    logs = [one for one in given if holds_log(one[1]) or not (is_ras(one[1]) or topology.is_inventory(one[1]))]
    case = Case(
        topology=None if matrix is None else topology.parse_topology(matrix[1], matrix[0]),
        logs=read_logs(logs) if logs else (),
        recorder=recorder,
        monitors=records,
        ras=parse_ras(texts),
        gpus=tuple(gpu for text in texts for gpu in topology.parse_inventory(text)),
        nvlinks={gpu: active for text in texts for gpu, active in topology.parse_nvlinks(text).items()},
    )
    places = [place for place in (topo, *nccl_logs, flight_recorder, *monitors) if isinstance(place, Path)]
    notes = [] if follows_links else [note for place in places for note in left_out(place)]
    notes += [note for part in (case.topology, recorder, records) if part is not None for note in part.notes]
    return Examination(case, diagnose(case), tuple(map(printable, notes)))


def _texts(given: Path | Text, follows_links: bool) -> list[Text]:
    if isinstance(given, tuple):
        return [given]
    return [(path.name, read_text(path)) for path in log_files(given, follows_links=follows_links)]


_HOMES = (watchdog, recorders, rules, topology, monitoring)

RULES: tuple[Callable[..., Iterable[Facts]], ...] = tuple(
    getattr(home, name) for name in KNOWLEDGE.rules for home in _HOMES if hasattr(home, name)
)
"""The functions that `knowledge.toml` has words for, in the order in which they speak among equals in severity.

A rule gets the parts of the case that its parameters name, and speaks where all of them are there; `log` is each one.
Each set of facts that it finds becomes a diagnosis.
"""


def diagnose(case: Case) -> tuple[Diagnosis, ...]:
    """All that the rules report, the most severe first."""
    found: list[Diagnosis] = []
    for rule in RULES:
        names = signature(rule).parameters
        for log in case.logs if "log" in names else (None,):
            parts = {name: {"log": log, "case": case}.get(name) or getattr(case, name) for name in names}
            for facts in rule(**parts) if all(parts.values()) else ():
                one = said(rule.__name__, {"case": case, "found": found, **parts, **facts})
                where = printable(f"{log.label}: ") if log and len(case.logs) > 1 else ""
                found.append(replace(one, diagnosis=f"{where}{one.diagnosis}"))
    return tuple(sorted(found, key=lambda one: SEVERITIES.index(one.severity)))


Rows = list[dict[str, Any]]


TableName = Literal[
    "topology", "communicators", "transports", "rings", "algorithms", "environment", "warnings", "last_calls",
    "late_ranks", "bandwidth", "products",
]  # fmt: skip


def tables(case: Case) -> dict[TableName, Rows]:
    """Name → rows; only tables of what was given."""
    made: dict[TableName, Rows] = {} if case.topology is None else {"topology": _topology(case.topology)}
    for name, rows_of in _OF_LOGS.items():
        made[name] = [{"log": log.label, **row} for log in case.logs for row in rows_of(log)]
    if case.recorder is not None:
        made["last_calls"] = plain_rows(_last_calls(case.recorder))
    if case.monitors is not None:
        made["late_ranks"] = plain_rows(arrivals(case.monitors))
        made["bandwidth"] = plain_rows(bandwidth(case.monitors))
        made["products"] = plain_rows(products(case.monitors))
    return {name: rows for name, rows in made.items() if rows}


def _topology(given: topology.Topology) -> Rows:
    nearest = given.nearest_nics()
    return [
        {
            "device": given.name_of(device),
            **{other: "X" if other == device else given.path(device, other) for other in given.devices},
            "nearest_nics": ", ".join(nearest[device][1]) if device in nearest else None,
            "cpus": given.cpu_affinity.get(device),
            "numa_node": given.numa_node.get(device),
        }
        for device in given.devices
    ]


def _members(log: NcclLog) -> Rows:
    transports: dict[Any, Counter[str]] = defaultdict(Counter)
    for link in log.links:
        transports[link.communicator, link.process][link.transport] += 1

    def own(member: Member, name: str) -> str | None:
        return log.facts[name].get(member.process)

    def number(member: Member, name: str, base: int = 10) -> int | None:
        text = own(member, name)
        return None if text is None else int(text, base)

    return [
        {
            "communicator": member.communicator,
            "rank": member.rank,
            "ranks": member.size,
            "host": member.process[0],
            "process": member.process[1],
            "gpu": member.gpu if member.gpu is not None else member.device,
            "nccl": own(member, "nccl"),
            "init": "complete" if member.is_complete else "not complete",
            "init_s": member.init_s,
            "transports": counted(transports[member.communicator, member.process]) or None,
            "channels": number(member, "coll_channels"),
            "trees": (own(member, "trees") or "").count("[") or None,
            "nvls": (nvls := own(member, "nvls")) and "not available" not in nvls,
            "nvls_channels": number(member, "nvls_channels"),
            "nvl_domain": number(member, "nvl_domain"),
            "network": own(member, "network"),
            "last_operation": number(member, "operation", 16),
            "end": member.closed_by or ("none in the log" if member.is_complete else None),
        }
        for member in sorted(log.members, key=lambda one: (-one.size, one.communicator, one.rank))
    ]


def _transports(log: NcclLog) -> Rows:
    pairs = Counter({(link.communicator, link.source, link.target, link.transport, link.channel) for link in log.links})
    counts = Counter(pair[:4] for pair in pairs)
    names = ("communicator", "source", "target", "transport", "channels")
    return [dict(zip(names, (*pair, channels), strict=True)) for pair, channels in sorted(counts.items(), key=str)]


def _rings(log: NcclLog) -> Rows:
    orders = Counter((communicator, ranks) for (communicator, _), ranks in log.rings.items())
    return [
        {"communicator": communicator, "channels": channels, "ring": " → ".join(map(str, ranks))}
        for (communicator, ranks), channels in orders.most_common()
    ]


_OF_LOGS: dict[TableName, Callable[[NcclLog], Rows]] = {
    "communicators": _members,
    "transports": _transports,
    "rings": _rings,
    "algorithms": lambda log: [
        {"collective": collective, "algorithm": algorithm, "protocol": protocol, "times": times}
        for (collective, algorithm, protocol), times in log.algorithms.most_common()
    ],
    "environment": lambda log: [
        {"variable": name, "value": value, "processes": len(who), "changes": KNOWLEDGE.settings.get(name)}
        for (name, value), who in sorted(log.environment.items())
    ],
    "warnings": lambda log: [
        {"warning": text[:400], "times": len(who), "ranks": ", ".join(map(str, log.ranks_of(who)[:32])) or None}
        for text, who in log.warnings.items()
    ],
}


def _last_calls(recorder: recorders.FlightRecorder) -> pd.DataFrame:
    """The last collective of each rank and group, those of suspects first."""
    suspects = {rank for one in recorder.absences for rank in one.missing}
    suspects |= {rank for one in recorder.mismatches for rank in one.others}
    last = recorder.last.assign(
        group=recorder.last["group"].astype(str).map({key: group.label for key, group in recorder.groups.items()}),
        is_suspect=recorder.last["rank"].isin(suspects),
    ).sort_values(["is_suspect", "group", "rank"], ascending=[False, True, True])
    return last[["rank", "group", "seq", "operation", "state", "sizes", "dtypes", "created_ns", "is_suspect"]]
