"""The examination's inputs as tables, as JSON and the page show them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from traceanalyzer.doctor.case import Case
from traceanalyzer.doctor.inspector import bandwidth, late_ranks
from traceanalyzer.doctor.nccl_log import NcclLog
from traceanalyzer.doctor.rules.job import SETTINGS
from traceanalyzer.doctor.xpu_timer import series

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
            "communicators": [row for log in case.logs for row in _members(log)],
            "transports": [row for log in case.logs for row in _transports(log)],
            "rings": [row for log in case.logs for row in _rings(log)],
            "algorithms": [row for log in case.logs for row in _algorithms(log)],
            "environment": [row for log in case.logs for row in _environment(log)],
            "warnings": [row for log in case.logs for row in _warnings(log)],
        }
    if case.recorder is not None:
        made |= _recorder(case)
    if case.inspector is not None:
        made["late_ranks"] = _rows(late_ranks(case.inspector))
        made["bandwidth"] = _rows(bandwidth(case.inspector))
    if case.xpu_timer is not None:
        made["xpu_timer_collectives"] = _rows(series(case.xpu_timer, "collective"))
        made["xpu_timer_products"] = _rows(series(case.xpu_timer, "product"))
    return {name: rows for name, rows in made.items() if rows}


def _topology(case: Case) -> Rows:
    assert case.topology is not None
    topology = case.topology
    nearest = topology.nearest_nics()
    return [
        {
            "device": topology.name_of(device),
            **{other: "X" if other == device else topology.path(device, other) for other in topology.devices},
            "nearest_nics": ", ".join(nearest[device][1]) if device in nearest else None,
            "cpus": topology.cpu_affinity.get(device),
            "numa_node": topology.numa_node.get(device),
        }
        for device in topology.devices
    ]


def _members(log: NcclLog) -> Rows:
    found: dict[Any, Counter[str]] = {}
    for link in log.links:
        found.setdefault((link.communicator, link.process), Counter())[link.transport] += 1
    return [
        {
            "log": log.label,
            "communicator": member.communicator,
            "rank": member.rank,
            "ranks": member.size,
            "host": member.process[0],
            "process": member.process[1],
            "gpu": member.gpu if member.gpu is not None else member.device,
            "nccl": log.versions.get(member.process),
            "init": "complete" if member.is_complete else "not complete",
            "init_s": member.init_s,
            "transports": ", ".join(f"{count} × {name}" for name, count in _of(found, member).most_common()) or None,
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


def _of(found: Mapping[Any, Counter[str]], member: Any) -> Counter[str]:
    return found.get((member.communicator, member.process), Counter())


def _transports(log: NcclLog) -> Rows:
    pairs: dict[Any, set[int]] = {}
    for link in log.links:
        pairs.setdefault((link.communicator, link.source, link.target, link.transport), set()).add(link.channel)
    return [
        {"log": log.label, "communicator": communicator, "source": source, "target": target, "transport": transport,
         "channels": len(channels)}
        for (communicator, source, target, transport), channels in sorted(pairs.items(), key=str)
    ]  # fmt: skip


def _rings(log: NcclLog) -> Rows:
    orders = Counter((communicator, ranks) for (communicator, _), ranks in log.rings.items())
    return [
        {"log": log.label, "communicator": communicator, "channels": channels, "ring": " → ".join(map(str, ranks))}
        for (communicator, ranks), channels in orders.most_common()
    ]


def _algorithms(log: NcclLog) -> Rows:
    return [
        {"log": log.label, "collective": collective, "algorithm": algorithm, "protocol": protocol, "times": times}
        for (collective, algorithm, protocol), times in log.algorithms.most_common()
    ]


def _environment(log: NcclLog) -> Rows:
    return [
        {"log": log.label, "variable": name, "value": value, "processes": len(who), "changes": SETTINGS.get(name)}
        for (name, value), who in sorted(log.environment.items())
    ]


def _warnings(log: NcclLog) -> Rows:
    return [
        {
            "log": log.label,
            "warning": text[:400],
            "times": len(who),
            "ranks": ", ".join(map(str, log.ranks_of(who)[:32])) or None,
        }
        for text, who in log.warnings.items()
    ]


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
