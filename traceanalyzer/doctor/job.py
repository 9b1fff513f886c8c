"""Rules about a job's log: versions, init, warnings, settings, and what is in order."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from traceanalyzer.doctor.case import Case, Diagnosis, by_value
from traceanalyzer.doctor.known_errors import KNOWLEDGE
from traceanalyzer.doctor.nccl_log import Member, NcclLog
from traceanalyzer.meaning.columns import size_text
from traceanalyzer.meaning.vocabulary import first_upper, numbered

SETTINGS = KNOWLEDGE.settings
"""Variables that change what NCCL does, and what each changes."""


def mixed_versions(case: Case) -> Iterator[Diagnosis]:
    """Ranks of one job with different versions of NCCL, by its log, else by the flight recorder's dumps."""
    sources: list[Mapping[Any, str]] = [
        {log.ranks.get(process, "{}:{}".format(*process)): version for process, version in log.facts["nccl"].items()}
        for log in case.logs
    ]
    sources += [case.recorder.library_versions] if case.recorder else []
    for versions in sources:
        if len(by_version := by_value(versions)) > 1:
            who = {version: [one for one in own if isinstance(one, int)] for version, own in by_version.items()}
            places = {version: numbered("rank", ranks) if ranks else ", ".join(map(str, by_version[version][:4]))
                      for version, ranks in who.items()}  # fmt: skip
            rarest = min(who.values(), key=len)
            yield Diagnosis(
                diagnosis=f"Ranks run different versions of NCCL: {', '.join(sorted(by_version))}. "
                "They may hang, crash or silently disagree.",
                signal="; ".join(f"{version} on {place}" for version, place in places.items()) + ".",
                ranks=tuple(rarest),
            )
            return


def init_incomplete(log: NcclLog) -> Iterator[Diagnosis]:
    """Ranks that began to make a communicator and never finished, or that no log mentions."""
    by_communicator: dict[str, list[Member]] = defaultdict(list)
    for member in log.members:
        by_communicator[member.communicator].append(member)
    for communicator, members in by_communicator.items():
        unfinished = [one for one in members if one.is_unfinished]
        if not unfinished:
            continue
        size = members[0].size
        absent = sorted(set(range(size)) - {member.rank for member in members})
        who, lacking = (numbered("rank", ranks) for ranks in ([member.rank for member in unfinished], absent))
        last = Counter(log.last_texts.get(member.process, "") for member in unfinished).most_common(1)[0][0]
        they = "it" if len(absent) == 1 else "them"
        never = f" {first_upper(lacking)} of {size} never began: the others wait for {they}." if absent else ""
        yield Diagnosis(
            diagnosis=f"Init of a communicator of {size} ranks never ends on {who}.{never}",
            signal=f"Init START without Init COMPLETE in communicator {communicator} on {who}"
            f"{f'; no line of {lacking}' if absent else ''}; last line: {last[:160]}",
            recommendation=f"Look at {lacking}: not started, crashed before, or unable to reach rank 0's address."
            if absent
            else "Look whether all ranks can reach each other (NCCL_SOCKET_IFNAME names the interface; firewalls), and "
            "at the warnings.",
            caveat=f"The log may have been cut{', or lack the files of some ranks' if absent else ''}.",
            ranks=tuple(absent or (member.rank for member in unfinished)),
        )


def wrong_values(log: NcclLog) -> Iterator[Diagnosis]:
    """Results that nccl-tests found wrong."""
    if log.wrong_values:
        yield Diagnosis(f"nccl-tests found {log.wrong_values} wrong values: data is corrupted.")


def settings(log: NcclLog) -> Iterator[Diagnosis]:
    """Variables in the environment that change what NCCL does, and that no other rule reports."""
    reported = {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}
    known = sorted({(name, value) for name, value in log.environment if name in SETTINGS and name not in reported})
    values = Counter(name for name, _ in log.environment)
    per_node = {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_TOPO_FILE", "NCCL_DEBUG_FILE"}
    uneven = sorted(name for name, own in values.items() if own > 1 and name in SETTINGS and name not in per_node)
    if known or uneven:
        yield Diagnosis(
            severity="medium" if uneven else "info",
            diagnosis="The environment changes what NCCL does: "
            + ", ".join(f"{name}={value} ({SETTINGS[name]})" for name, value in known)
            + (f". Not the same on all ranks: {', '.join(uneven)}." if uneven else "."),
            recommendation="Give all ranks the same settings." if uneven else None,
        )


def log_in_words(log: NcclLog) -> Iterator[Diagnosis]:
    """What a log tells that is in order."""
    versions = sorted(set(log.facts["nccl"].values()))
    if not (versions or log.nccl_lines or log.test_gb_per_s):
        return
    world = [member for member in log.members if member.size == log.world]
    complete = [member for member in world if member.is_complete]
    size = max(log.test_gb_per_s, key=log.test_gb_per_s.__getitem__, default=0)
    transports = Counter(link.transport for link in log.links).most_common(4)
    parts = [
        f"NCCL {' and '.join(versions) or 'of unknown version'}",
        f"{log.world} ranks on {len(log.hosts)} {'host' if len(log.hosts) == 1 else 'hosts'}" if log.world else "",
        _init(log, len(complete)),
        ", ".join(f"{count} connections via {transport}" for transport, count in transports),
        f"{count} channels for collectives" if (count := log.coll_channels()) is not None else "",
        *sorted({f"rings of {count} channels at {rate:g} GB/s over {path}"
                 for count, rate, path in log.facts["ring_graph"].values()}),
        *sorted({f"NVLink domain of {gpus} GPUs (MNNVL)" for gpus in log.facts["nvl_domain"].values()}),
        f"nccl-tests reach {log.test_gb_per_s[size]:g} GB/s of bus bandwidth at {size_text(size)}" if size else "",
        "the network is Socket, which is harmless on one node"
        if log.is_one_node and "Socket" in log.facts["network"].values()
        else "",
    ]  # fmt: skip
    is_fine = bool(complete) and len(complete) == len(world) and not log.warnings and len(versions) == 1
    closed = any(member.closed_by == "Destroy" for member in world)
    yield Diagnosis(
        diagnosis="The log: "
        + "; ".join(part for part in parts if part)
        + (". No warning; every rank that it has finished init" if is_fine else "")
        + (", and closed its communicator." if is_fine and closed else "."),
        signal=f"{log.nccl_lines:,} lines of NCCL in {', '.join(log.names[:3])}"
        + (" and more." if len(log.names) > 3 else "."),
        caveat=None
        if closed or not is_fine
        else "It does not have the end of the job: a hang after the last line would not show.",
    )


def _init(log: NcclLog, complete: int) -> str:
    times = [member.init_s for member in log.members if member.init_s is not None and member.size == log.world]
    if not complete:
        return ""
    span = " to ".join(f"{time:.2f}" for time in sorted({*times}) if time in (min(times), max(times)))
    return f"init complete on {complete} of {log.world}{f' in {span} s' if times else ''}"
