"""An examination: inputs read, put together, what the rules say of them, and tables of them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal

from traceanalyzer.doctor import hang, job, known_errors, monitors, topology, transports, watchdog
from traceanalyzer.doctor.case import Case, Diagnosis
from traceanalyzer.doctor.flight_recorder import read_flight_recorder
from traceanalyzer.doctor.inputs import left_out, log_files, read_text
from traceanalyzer.doctor.nccl_log import NcclLog, holds_log, read_logs
from traceanalyzer.errors import UsageError
from traceanalyzer.meaning.vocabulary import SEVERITIES
from traceanalyzer.model.schema import printable


@dataclass(frozen=True, slots=True)
class Examination:
    """What was given, and what it tells.

    Attributes:
        case: the inputs, read.
        diagnoses: what the rules say, the most severe first.
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


def examine(
    *,
    topo: Path | None = None,
    nccl_logs: Sequence[Path] = (),
    flight_recorder: Path | None = None,
    inspector: Path | None = None,
    xpu_timer: Path | None = None,
) -> Examination:
    """Read what there is and say what it tells.

    Args:
        topo: a file with what `nvidia-smi topo -m` prints.
        nccl_logs: files, or folders of them; what `ncclras` printed may be among them.
        flight_recorder: a folder of dumps, or one.
        inspector: a folder of NCCL Inspector's files, or one.
        xpu_timer: a saved answer of xpu_timer's metrics port, or a folder of them.

    Raises:
        UsageError: nothing was given.
        InputError: an input holds nothing of its kind.
    """
    texts = [(path.name, read_text(path)) for place in nccl_logs for path in log_files(place)]
    return examine_texts(
        topo=None if topo is None else (topo.name, read_text(topo)),
        nccl_logs=texts,
        flight_recorder=flight_recorder,
        inspector=inspector,
        xpu_timer=xpu_timer,
    )


def examine_texts(
    *,
    topo: tuple[str, str] | None = None,
    nccl_logs: Sequence[tuple[str, str]] = (),
    flight_recorder: Path | None = None,
    inspector: Path | None = None,
    xpu_timer: Path | None = None,
    follows_links: bool = False,
) -> Examination:
    """The same of texts in memory, each with its name."""
    if topo is None and not nccl_logs and all(place is None for place in (flight_recorder, inspector, xpu_timer)):
        raise UsageError(
            "nothing to examine: give a folder of logs and dumps, --run, or one of --topo, --nccl-log, "
            "--flight-recorder, --inspector and --xpu-timer"
        )
    ras = [monitors.parse_ras(text, name) for name, text in nccl_logs if monitors.is_ras(text)]
    gpus = tuple(gpu for _, text in (*nccl_logs, *([topo] if topo else ())) for gpu in topology.parse_inventory(text))
    logs = [one for one in nccl_logs if holds_log(one[1]) or not (monitors.is_ras(one[1]) or gpus)]
    recorder = None if flight_recorder is None else read_flight_recorder(flight_recorder, follows_links=follows_links)
    stand = None if recorder is None else hang.standing(recorder)
    records = None if inspector is None else monitors.read_inspector(inspector, follows_links=follows_links)
    matrix = None if topo is None else topology.parse_topology(topo[1], topo[0])
    metrics = None if xpu_timer is None else monitors.read_xpu_timer(xpu_timer, follows_links=follows_links)
    case = Case(matrix, read_logs(logs) if logs else (), recorder, stand, records, _joined(ras), metrics, gpus)
    folders = [place for place in (flight_recorder, inspector, xpu_timer) if place is not None]
    notes = [] if follows_links else [note for place in folders for note in left_out(place)]
    notes += [note for part in (matrix, recorder, records, metrics) if part is not None for note in part.notes]
    diagnoses = tuple(one.legible for one in diagnose(case))
    return Examination(case, diagnoses, tuple(map(printable, notes)))


def _joined(reports: Sequence[monitors.RasReport]) -> monitors.RasReport | None:
    if not reports:
        return None
    return monitors.RasReport(
        tuple(trouble for one in reports for trouble in one.troubles),
        reports[0].nccl_version,
        tuple(state for one in reports for state in one.states),
        max(one.ranks for one in reports),
    )


RULES: tuple[Callable[..., Iterable[Diagnosis]], ...] = (
    watchdog.dead_ranks,
    known_errors.warnings,
    hang.no_entries,
    hang.rank_never_came,
    hang.mismatched_calls,
    hang.open_send_recv,
    hang.ranks_without_dump,
    hang.open_everywhere,
    watchdog.timeouts,
    watchdog.stuck_watchdog,
    transports.suspected_p2p_failure,
    job.wrong_values,
    job.init_incomplete,
    job.mixed_versions,
    transports.nvlink_unused,
    transports.p2p_off,
    transports.p2p_refused,
    transports.shm_off,
    transports.sockets_across_nodes,
    transports.no_gpudirect,
    topology.gpu_inventory,
    topology.unread_rows,
    topology.no_p2p,
    transports.slow_links,
    topology.far_nic,
    topology.sys_paths,
    transports.few_channels,
    monitors.ras_troubles,
    monitors.reported_hang,
    monitors.often_last,
    monitors.waited_for,
    monitors.slow_products,
    monitors.bandwidth_drops,
    job.settings,
    topology.topology_in_words,
    job.log_in_words,
    hang.recorder_in_words,
)
"""In the order in which they speak among equals in severity.

A rule gets the parts of the case that its parameters name, and speaks where all of them are there; `log` is each one.
"""


def diagnose(case: Case) -> tuple[Diagnosis, ...]:
    """All that the rules say, the most severe first."""
    said = []
    for rule in RULES:
        names = signature(rule).parameters
        always = known_errors.KNOWLEDGE.rules.get(rule.__name__, {})
        for log in case.logs if "log" in names else (None,):
            parts = {name: {"log": log, "case": case}.get(name) or getattr(case, name) for name in names}
            for one in rule(**parts) if all(parts.values()) else ():
                told: dict[str, Any] = {
                    name: text for name, text in always.items() if name == "severity" or not getattr(one, name)
                }
                said.append(replace(one, rule=rule.__name__, **told))
    return tuple(sorted(said, key=lambda one: SEVERITIES.index(one.severity)))


Rows = list[dict[str, Any]]


TableName = Literal[
    "topology", "communicators", "transports", "rings", "algorithms", "environment", "warnings", "last_calls",
    "never_came", "mismatches", "late_ranks", "bandwidth", "xpu_timer_collectives", "xpu_timer_products",
]  # fmt: skip


def tables(case: Case) -> dict[TableName, Rows]:
    """Name → rows; only tables of what was given."""
    made: dict[TableName, Rows] = {}
    if case.topology is not None:
        made["topology"] = _topology(case)
    if case.logs:
        made |= {
            name: [{"log": log.label, **row} for log in case.logs for row in rows_of(log)]
            for name, rows_of in _OF_LOGS.items()
        }
    if case.recorder is not None:
        made |= _recorder(case)
    if case.inspector is not None:
        made["late_ranks"] = _rows(monitors.last_arrivals(case.inspector))
        made["bandwidth"] = _rows(monitors.bandwidth(case.inspector))
    if case.xpu_timer is not None:
        made["xpu_timer_collectives"] = _rows(monitors.series(case.xpu_timer, "collective"))
        made["xpu_timer_products"] = _rows(monitors.series(case.xpu_timer, "product"))
    return {name: rows for name, rows in made.items() if rows}


def _topology(case: Case) -> Rows:
    assert case.topology is not None
    given = case.topology
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
    found: dict[Any, Counter[str]] = defaultdict(Counter)
    for link in log.links:
        found[link.communicator, link.process][link.transport] += 1
    return [
        {
            "communicator": member.communicator,
            "rank": member.rank,
            "ranks": member.size,
            "host": member.process[0],
            "process": member.process[1],
            "gpu": member.gpu if member.gpu is not None else member.device,
            "nccl": log.versions.get(member.process),
            "init": "complete" if member.is_complete else "not complete",
            "init_s": member.init_s,
            "transports": ", ".join(
                f"{count} × {name}" for name, count in found[member.communicator, member.process].most_common()
            )
            or None,
            "channels": log.channels.get(member.process, {}).get("coll"),
            "trees": log.trees.get(member.process),
            "nvls": log.nvls.get(member.process),
            "nvls_channels": log.channels.get(member.process, {}).get("nvls"),
            "network": log.networks.get(member.process),
            "last_operation": log.operations.get(member.process),
            "end": member.is_closed or ("none in the log" if member.is_complete else None),
        }
        for member in sorted(log.members, key=lambda one: (-one.size, one.communicator, one.rank))
    ]


def _transports(log: NcclLog) -> Rows:
    pairs: dict[Any, set[int]] = defaultdict(set)
    for link in log.links:
        pairs[link.communicator, link.source, link.target, link.transport].add(link.channel)
    return [
        {"communicator": communicator, "source": source, "target": target, "transport": transport,
         "channels": len(channels)}
        for (communicator, source, target, transport), channels in sorted(pairs.items(), key=str)
    ]  # fmt: skip


def _rings(log: NcclLog) -> Rows:
    orders = Counter((communicator, ranks) for (communicator, _), ranks in log.rings.items())
    return [
        {"communicator": communicator, "channels": channels, "ring": " → ".join(map(str, ranks))}
        for (communicator, ranks), channels in orders.most_common()
    ]


def _algorithms(log: NcclLog) -> Rows:
    return [
        {"collective": collective, "algorithm": algorithm, "protocol": protocol, "times": times}
        for (collective, algorithm, protocol), times in log.algorithms.most_common()
    ]


def _environment(log: NcclLog) -> Rows:
    return [
        {"variable": name, "value": value, "processes": len(who), "changes": job.SETTINGS.get(name)}
        for (name, value), who in sorted(log.environment.items())
    ]


def _warnings(log: NcclLog) -> Rows:
    return [
        {
            "warning": text[:400],
            "times": len(who),
            "ranks": ", ".join(map(str, log.ranks_of(who)[:32])) or None,
        }
        for text, who in log.warnings.items()
    ]


_OF_LOGS: dict[TableName, Callable[[NcclLog], Rows]] = {
    "communicators": _members, "transports": _transports, "rings": _rings, "algorithms": _algorithms,
    "environment": _environment, "warnings": _warnings,
}  # fmt: skip


def _recorder(case: Case) -> dict[TableName, Rows]:
    assert case.recorder is not None
    assert case.standing is not None
    recorder, absent, different = case.recorder, case.standing.absences, case.standing.mismatches
    suspects = {rank for one in absent for rank in one.missing} | {rank for one in different for rank in one.others}
    last = case.standing.last
    last = last.assign(
        group=last["group"].astype(str).map({key: group.label for key, group in recorder.groups.items()}),
        is_suspect=last["rank"].isin(suspects),
    ).sort_values(["is_suspect", "group", "rank"], ascending=[False, True, True])
    columns = ["rank", "group", "seq", "operation", "state", "sizes", "dtypes", "created_ns", "is_suspect"]
    return {
        "never_came": [
            {"group": one.group.label, "seq": one.seq, "operation": one.operation, "missing": list(one.missing),
             "without_dump": list(one.undumped), "waiting": len(one.came), "since_ns": one.since_ns,
             "frames": list(one.frames), "missing_frames": list(one.missing_frames)}
            for one in absent
        ],
        "mismatches": [
            {"group": one.group.label, "seq": one.seq, "what": one.what, "usual": one.usual,
             "ranks_usual": one.agreeing, "others": {str(rank): value for rank, value in one.others.items()},
             "frames": {str(rank): list(frames) for rank, frames in one.frames.items()}}
            for one in different
        ],
        "last_calls": _rows(last[columns]),
    }  # fmt: skip


def _rows(frame: Any) -> Rows:
    made = frame.astype(object).where(frame.notna(), None)
    return [
        {name: value.item() if hasattr(value, "item") else value for name, value in row.items()}
        for row in made.to_dict("records")
    ]
